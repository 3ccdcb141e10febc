//! The context of one request for its handler: the request, its user, and the form of its errors.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::io::Errno;

use crate::auth::hosts::is_loopback;
use crate::auth::{CHALLENGE, Right};
use crate::connection::Link;
use crate::connection::peer::Peer;
use crate::files::open_files::is_missing;
use crate::routing::error_page::navigation_links;
use crate::routing::response::{RETRY_SOON, Response};
use crate::server::settings::SiteSettings;
use crate::server::shared::ServerState;
use crate::server::sites::local::Selection;
use crate::server::sites::site::Site;
use crate::server::worker::Worker;
use crate::uploads::ReceivedUpload;
use underpass_protocol::request::Request;
use underpass_protocol::request::origin::is_foreign;
use underpass_protocol::request::target::{Target, slash_redirect, whole_slash_redirect};
use underpass_protocol::upload::Owner;

/// One request that is being answered.
pub(crate) struct RequestContext<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) peer: &'a Peer,
    pub(crate) request: Request<'a, 'a>,
    pub(crate) selection: &'a Selection,
    /// The time of day at which the request was complete.
    pub(crate) now: SystemTime,
    /// The moment at which its first byte arrived.
    pub(crate) started: Instant,
    /// The user that sent the request, once the password is verified.
    pub(crate) user: Option<Arc<str>>,
    /// Whether the client may see only names that lead to something it may read.
    pub(crate) is_partial: bool,
    /// Whether the response is to name the mechanism that moves its bytes.
    pub(crate) explains: bool,
    /// The bytes that were read from the connection after the head.
    pub(crate) ahead: Cell<Vec<u8>>,
    /// The result of receiving the request's body, if a handler did so. Boxed because most
    /// requests have none.
    pub(crate) received: Cell<Option<Box<ReceivedUpload>>>,
}

impl<'a> RequestContext<'a> {
    pub(crate) fn new(
        Link { worker, peer }: Link<'a>,
        request: Request<'a, 'a>,
        selection: &'a Selection,
        started: Instant,
    ) -> Self {
        Self {
            worker,
            peer,
            request,
            selection,
            now: SystemTime::now(),
            started,
            user: None,
            is_partial: false,
            explains: request.field("underpass-explain") == Some(b"1"),
            ahead: Cell::default(),
            received: Cell::default(),
        }
    }

    /// Returns the connection and its worker.
    pub(crate) fn link(&self) -> Link<'a> {
        Link { worker: self.worker, peer: self.peer }
    }

    /// Returns the state that all workers share.
    pub(crate) fn shared(&self) -> &'a Arc<ServerState> {
        &self.worker.shared
    }

    /// Returns the site that answers.
    pub(crate) fn site(&self) -> &'a Arc<Site> {
        &self.selection.site.site
    }

    /// Returns the settings of the site.
    pub(crate) fn settings(&self) -> &'a SiteSettings {
        &self.site().settings
    }

    /// Returns the user, or the address of a client without one, for limits on each.
    pub(crate) fn owner(&self) -> Owner {
        Owner::new(self.user.as_ref(), self.peer.client_net())
    }

    /// Returns whether the rules give this client a right on a path.
    pub(crate) fn can(&self, path: &[u8], right: Right) -> bool {
        self.settings().access.can(self.user.as_deref(), path, right)
    }

    /// Checks that the client may read the path that links led to, if any were followed.
    ///
    /// # Errors
    ///
    /// `EACCES` if it may not.
    pub(crate) fn may_reach(&self, reached: Option<&[u8]>) -> Result<(), Errno> {
        if reached.is_none_or(|reached| self.can(reached, Right::Read)) {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }

    /// Returns an error in the form that the client understands.
    pub(crate) fn error(&self, status: u16, detail: &str) -> Response {
        self.error_with_link(status, detail, None)
    }

    /// Returns an error as [`error`](Self::error) does, whose page has one more link, with its text.
    pub(crate) fn error_with_link(
        &self,
        status: u16,
        detail: &str,
        link: Option<(&str, &'static str)>,
    ) -> Response {
        let settings = self.settings();
        let target = Target::parse(self.request.target, settings.path_prefix.as_bytes());
        let mut links = match target {
            Ok(target) if settings.lists_folders() => navigation_links(&target),
            _ => Vec::new(),
        };
        links.extend(link.map(|(href, text)| (href.to_owned(), text)));
        Response::error_for(&self.request, status, detail, &links)
    }

    /// Returns the redirect to the same folder with the slash that links on its page need.
    pub(crate) fn slash(&self, target: &Target<'_>) -> Response {
        let (path, query) = (target.raw_path, target.query.raw);
        let agent = self.request.field("user-agent").unwrap_or_default();
        let undoes_escapes = agent.windows(AIOHTTP.len()).any(|part| part == AIOHTTP);
        let location = match agent {
            BUSYBOX => whole_slash_redirect(path, query),
            _ => slash_redirect(path, query, undoes_escapes),
        };
        let mut response = self.error(301, "");
        response.add_field("Location", &location);
        response.add_field("Vary", "User-Agent");
        response
    }

    /// Returns whether a program of root or of the server's user on this machine sent the request,
    /// not through a proxy, as far as that is known: a proxy that adds no field is recognized if it
    /// speaks HTTP/1.0, passes on a name that is neither one of this machine nor of the site, or
    /// has its own user, as nginx does. Requests of another site's page in a browser of that user
    /// do not count.
    pub(crate) fn is_from_operator(&self) -> bool {
        let request = &self.request;
        let is_known = self.peer.is_unix() || self.selection.is_named;
        let is_direct = is_known || request.authority().is_some_and(is_loopback);
        let is_forwarded = || FORWARDED.iter().any(|name| request.has(name));
        let may_be = self.peer.is_from_here() && request.minor_version > 0 && is_direct;
        may_be
            && !is_forwarded()
            && !is_foreign(request, self.peer.is_secure())
            && self.peer.is_of_operator()
    }

    /// Returns the error that requests a name and a password.
    pub(crate) fn challenge(&self) -> Response {
        self.challenged("a user name and a password are required")
    }

    /// Returns the error that makes a client send a name and a password, or other ones.
    pub(crate) fn challenged(&self, detail: &str) -> Response {
        let mut response = self.error(401, detail);
        response.add_field("WWW-Authenticate", CHALLENGE);
        response
    }

    /// Returns a temporary error, after which the client may try again soon.
    pub(crate) fn busy(&self, status: u16, detail: &str) -> Response {
        let mut response = self.error(status, detail);
        response.add_field("Retry-After", RETRY_SOON);
        response
    }

    /// Returns an error after which the client is asked to wait for this time, if there is one.
    pub(crate) fn error_until(
        &self,
        status: u16,
        detail: &str,
        retry_after: Option<Duration>,
    ) -> Response {
        let mut response = self.error(status, detail);
        if let Some(wait) = retry_after {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            response.add_field("Retry-After", &seconds.to_string());
        }
        response
    }

    /// Returns the last response for a client that has ended the connection, or its side of it.
    pub(crate) fn left(&self) -> Response {
        self.busy(503, "the file system took too long; try again soon").closing()
    }

    /// Returns the error for an operation that the system has refused.
    pub(crate) fn failed(&self, error: &io::Error) -> Response {
        match Errno::from_io_error(error) {
            Some(errno) => self.refused(errno),
            None => self.error(500, ""),
        }
    }

    /// Returns the error for a file or folder that the system does not open or read.
    pub(crate) fn refused(&self, errno: Errno) -> Response {
        match errno {
            errno if is_missing(errno) => self.error(404, ""),
            Errno::ACCESS | Errno::PERM => self.error(403, ""),
            Errno::BUSY => self.busy(503, "the file is being written to; try again soon"),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
                self.busy(503, "the server is too busy; try again soon")
            }
            _ => self.error(500, "the file cannot be read"),
        }
    }
}

/// The library whose clients undo the escapes of a path to which a redirect is relative.
const AIOHTTP: &[u8] = b"aiohttp/";

/// The whole `User-Agent` of BusyBox's wget, which treats a relative redirect as a host name. That
/// of GNU's wget has a version.
const BUSYBOX: &[u8] = b"Wget";

/// The fields in which proxies describe the clients they forward.
const FORWARDED: [&str; 11] = [
    "cf-connecting-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
];
