//! Finds the answer to one request: who asks, what for, what is there. What a response then says
//! is planned elsewhere, without the file; its bytes are sent elsewhere, without the request.

use std::io;
use std::rc::Rc;
use std::time::{Instant, SystemTime};

use rustix::io::Errno;
use underpass_engine::{Integrity, Mechanism, Policy};

use super::changes;
use super::detour;
use super::endpoints;
use super::files::{self, Found, Served, is_missing};
use super::folder;
use super::peer::Peer;
use super::question::{Known, Question};
use super::reach;
use super::response::{Body, FileBody, Response};
use super::send::is_copied;
use super::uploads;
use super::worker::Worker;
use crate::media::is_active;
use crate::negotiate::{acceptable, wants_html};
use crate::plan::{Facts, PlannedBody};
use crate::request::{Method, Request};
use crate::resumption::Download;
use crate::target::{Target, TargetError, slash_redirect};
use crate::tls::Place as TlsPlace;
use crate::upload::{PARTIAL_UPLOAD, UploadId};

/// One request that is being answered.
pub(super) struct Asking<'a, 'f, 'b> {
    pub(super) worker: &'a Worker,
    pub(super) peer: &'a Peer,
    pub(super) request: &'a Request<'f, 'b>,
    /// The head of the request, as it came.
    pub(super) head: &'b [u8],
    /// What was found out about it so far.
    pub(super) known: &'a mut Known,
    pub(super) now: SystemTime,
    pub(super) instant: Instant,
    /// Who asks, once that is known.
    pub(super) user: Option<std::sync::Arc<str>>,
    /// Whether it may know only which names lead to what it may read.
    pub(super) is_partial: bool,
    /// Whether the request goes into the log.
    pub(super) is_logged: bool,
    /// What is to be remembered if the response breaks off.
    pub(super) download: Option<Download>,
    /// Whether the answer is to say which way its bytes take.
    pub(super) explains: bool,
}

/// What is found at a path, with an open file shared among its responses.
pub(super) enum Place {
    File(Rc<Served>),
    Folder(std::os::fd::OwnedFd),
    Unsized(std::os::fd::OwnedFd),
}

impl<'a, 'f, 'b> Asking<'a, 'f, 'b> {
    pub(super) fn new(
        worker: &'a Worker,
        peer: &'a Peer,
        request: &'a Request<'f, 'b>,
        head: &'b [u8],
        known: &'a mut Known,
        instant: Instant,
    ) -> Self {
        let now = SystemTime::now();
        let explains = request.field("underpass-explain") == Some(b"1");
        Self {
            worker,
            peer,
            request,
            head,
            known,
            now,
            instant,
            user: None,
            is_partial: false,
            is_logged: true,
            download: None,
            explains,
        }
    }

    /// The answer, or what has to be found out first.
    pub(super) fn answer(&mut self) -> Result<Response, Question> {
        if let Some(response) = detour::answer(self) {
            return Ok(response);
        }
        let settings = &self.worker.shared.settings;
        // A browser asks on behalf of another site before it sends any credentials.
        let is_preflight = settings.cors && self.request.field("origin").is_some();
        if self.request.method == Method::Options && (self.request.target == b"*" || is_preflight) {
            return Ok(self.allow());
        }
        let target = match Target::parse(self.request.target, settings.path_prefix.as_bytes()) {
            Ok(target) => target,
            Err(error @ TargetError::Malformed(_)) => {
                return Ok(self.error(error.status(), &error.to_string()));
            }
            Err(error) => return Ok(self.error(error.status(), "")),
        };
        self.explains |= target.query.has("explain");
        let endpoint = endpoints::find(settings, &target);
        if let Some(endpoint) = endpoint.filter(|endpoint| endpoint.is_open()) {
            self.is_logged = false;
            return Ok(endpoint.answer(self, &target));
        }
        if self.request.method == Method::Options {
            // Browsers ask this without credentials before they ask another site with them.
            return Ok(self.allow());
        }
        if let Some(refusal) = self.check_access(&target)? {
            return Ok(refusal);
        }
        if self.is_partial {
            return self.partial(&target);
        }
        if self.request.method == Method::Other {
            return Ok(changes::refuse(self));
        }
        if self.request.method.changes() {
            let is_reserved = endpoint.is_some() || is_reserved(&target.path);
            return if is_reserved {
                Ok(self.error(403, ""))
            } else {
                match reach::target(self, target)? {
                    Ok(target) => changes::answer(self, &target),
                    Err(refusal) => Ok(refusal),
                }
            };
        }
        match endpoint {
            Some(endpoint) => Ok(endpoint.answer(self, &target)),
            None if is_reserved(&target.path) => Ok(self.error(404, "")),
            None => self.path(&target),
        }
    }

    /// What is at the path, if anything is.
    fn path(&mut self, target: &Target<'_>) -> Result<Response, Question> {
        if self.asks_of_upload(target) {
            return match reach::target(self, target.clone())? {
                Ok(target) => Ok(changes::answer_of_upload(self, &target)),
                Err(refusal) => Ok(refusal),
            };
        }
        if let Some(name) = self.worker.shared.root.only(&target.path) {
            let name = name.to_vec();
            return match self.find(&name)? {
                Ok(Place::File(served)) => self.file(target, &name, served),
                Ok(_) => Ok(self.error(404, "")),
                Err(errno) => Ok(self.refused(errno)),
            };
        }
        match self.find(&target.path)? {
            Ok(Place::File(_) | Place::Unsized(_)) if target.is_folder => self.missing(target),
            Ok(Place::File(served)) => self.file(target, &target.path, served),
            Ok(Place::Unsized(_)) if target.query.has("hash") => {
                Ok(self.error(404, "this file is made when it is read, and has no digest"))
            }
            Ok(Place::Unsized(file)) => self.text(&target.path, file),
            Ok(Place::Folder(_)) if !target.is_folder => Ok(self.redirect(target)),
            Ok(Place::Folder(folder)) => self.folder(target, folder),
            Err(errno) if is_missing(errno) => self.missing(target),
            Err(errno) => Ok(self.refused(errno)),
        }
    }

    /// Whether it is asked how far an upload is, and not for the file: that is for those who may
    /// write.
    pub(super) fn asks_of_upload(&self, target: &Target<'_>) -> bool {
        if !self.worker.shared.settings.changes.upload {
            return false;
        }
        let id = target.query.get("upload");
        match self.request.method {
            Method::Head => id.is_some() || target.query.has("partial"),
            Method::Get => id.is_some_and(|id| UploadId::parse(&id).is_some()),
            _ => false,
        }
    }

    /// Opens a path, or takes what was opened a moment ago.
    pub(super) fn find(&mut self, path: &[u8]) -> Result<Result<Place, Errno>, Question> {
        let mut files = self.worker.files.borrow_mut();
        let changes = self.worker.shared.changes();
        files.keep_up(changes);
        if let Some(served) = files.get(path, self.instant) {
            let may = self.may_reach(served.reached.as_deref());
            return Ok(may.map(|()| Place::File(served)));
        }
        let mut is_kept = true;
        let found = match self.known.take(path) {
            Some(opened) => {
                is_kept = opened.changes == changes;
                opened.found
            }
            None => match files::open_at_once(&self.worker.shared, path) {
                Err(Errno::AGAIN) => return Err(Question::Open(path.to_vec())),
                found => found,
            },
        };
        if let Ok(found) = &found
            && let Err(errno) = self.may_reach(found.reached())
        {
            return Ok(Err(errno));
        }
        Ok(found.map(|found| match found {
            Found::Folder(folder, _) => Place::Folder(folder),
            Found::Unsized(file, _) => Place::Unsized(file),
            Found::File(served) => {
                let served = Rc::from(served);
                if is_kept {
                    files.put(path, &served, self.instant);
                }
                Place::File(served)
            }
        }))
    }

    /// The same, but nothing that was changed since it was opened.
    pub(super) fn find_current(&mut self, path: &[u8]) -> Result<Result<Place, Errno>, Question> {
        let found = self.find(path)?;
        if matches!(&found, Ok(Place::File(served)) if !served.is_current()) {
            self.worker.files.borrow_mut().forget(path);
            return self.find(path);
        }
        Ok(found)
    }

    /// A regular file in its present version.
    fn file(
        &mut self,
        target: &Target<'_>,
        path: &[u8],
        mut served: Rc<Served>,
    ) -> Result<Response, Question> {
        while self.known.outdated < ATTEMPTS {
            let response = match self.hash(target, &served)? {
                Some(response) => response,
                None => self.version(target, path, &served)?,
            };
            let is_guarded = matches!(&response.body, Body::File(body) if body.is_guarded);
            if (is_guarded && served.packed.is_empty()) || served.is_current() {
                return Ok(response);
            }
            self.known.outdated += 1;
            self.worker.files.borrow_mut().forget(path);
            served = match self.find(path)? {
                Ok(Place::File(served)) => served,
                Ok(_) => break,
                Err(errno) => return Ok(self.refused(errno)),
            };
        }
        // It is written to faster than it can be looked at.
        Ok(self.refused(Errno::AGAIN))
    }

    /// A version of a regular file, or the packed form of it that the client likes best.
    fn version(
        &mut self,
        target: &Target<'_>,
        path: &[u8],
        served: &Rc<Served>,
    ) -> Result<Response, Question> {
        let is_packed = !served.packed.is_empty();
        let find = |coding| served.packed.iter().find(|(packed, _)| *packed == coding);
        // What the client accepts need not be read where there is nothing to choose from.
        let choice = if is_packed { acceptable(self.request).find_map(find) } else { None };
        let (coding, chosen) = match choice {
            Some((coding, packed)) => (Some(*coding), packed),
            None => (None, &**served),
        };
        let is_download = target.query.has("download");
        let name = path.rsplit(|byte| *byte == b'/').next();
        // The one file that is served has an address without its name.
        let is_renamed = target.path.is_empty() && self.worker.shared.root.is_file();
        let facts = Facts {
            len: chosen.len(),
            etag: &chosen.etag,
            modified: chosen.modified,
            media_type: chosen.media_type,
            coding,
            varies: is_packed,
            file_name: name.filter(|_| is_download || is_renamed),
            is_download,
        };
        let mut plan = self.plan(&facts);
        self.add_digest(&mut plan, chosen)?;
        let (status, len) = (plan.status, plan.body_len);
        let way = self.way(len, &plan.body);
        let is_copied = is_copied(self.peer, &self.worker.shared.settings, len, &plan.body);
        let body = match plan.body {
            PlannedBody::Nothing => Body::Nothing,
            PlannedBody::Message(text) => Body::Memory(text.into_owned().into_bytes().into()),
            content => {
                let mut body = FileBody::new(chosen, content, len);
                body.is_guarded =
                    is_copied && self.worker.shared.settings.integrity == Integrity::Detect;
                body.is_resident = chosen.is_resident(self.instant);
                body.is_unsettled = chosen.is_unsettled(self.now);
                Body::File(Box::new(body))
            }
        };
        let mut response =
            Response { status, fields: plan.fields, body, len: Some(len), closes: false };
        self.add_common(&mut response, way);
        self.add_sandbox(&mut response, chosen.media_type);
        Ok(response)
    }

    /// Has a browser keep what scripts of a file do away from this server.
    fn add_sandbox(&self, response: &mut Response, media_type: &str) {
        if self.worker.shared.sandboxes && is_active(media_type) {
            response.add_field("Content-Security-Policy", "sandbox");
        }
    }

    /// What every response about a file or archive says.
    pub(super) fn add_common(&self, response: &mut Response, way: &str) {
        let settings = &self.worker.shared.settings;
        if let Some(value) = &settings.cache_control
            && matches!(response.status, 200 | 206 | 304)
        {
            response.add_field("Cache-Control", value);
        }
        if self.explains {
            let way = if response.body.is_nothing() { "none" } else { way };
            let integrity = settings.integrity.name();
            let tls = self.peer.session().map(|session| match session.facts().place {
                TlsPlace::Kernel => ", tls;desc=\"kernel\"".to_owned(),
                TlsPlace::UserSpace(why) => format!(", tls;desc=\"user_space {}\"", why.name()),
            });
            let tls = tls.unwrap_or_default();
            let timing = format!("path;desc=\"{way}\", integrity;desc=\"{integrity}\"{tls}");
            response.add_field("Server-Timing", &timing);
        }
    }

    /// Which way the bytes of a file are going to take, as far as that is known beforehand.
    fn way(&self, len: u64, body: &PlannedBody) -> &'static str {
        let lacks = |mechanism| self.worker.capabilities.lacks(mechanism);
        let settings = &self.worker.shared.settings;
        match self.peer.policy(settings.policy) {
            Policy::Require(mechanism) | Policy::Prefer(mechanism) => mechanism.name(),
            Policy::Auto if is_copied(self.peer, settings, len, body) => {
                Mechanism::ReadWrite.name()
            }
            Policy::Auto if !lacks(Mechanism::Sendfile) => Mechanism::Sendfile.name(),
            Policy::Auto if !lacks(Mechanism::Splice) => Mechanism::Splice.name(),
            Policy::Auto => Mechanism::ReadWrite.name(),
        }
    }

    /// A file that has its contents only when it is read.
    fn text(&mut self, path: &[u8], file: std::os::fd::OwnedFd) -> Result<Response, Question> {
        let is_head = self.request.method == Method::Head;
        match self.known.text.take() {
            None => Err(Question::Read(file)),
            Some(Err(error)) => Ok(self.failed(&error)),
            Some(Ok(text)) => {
                let media_type = crate::media::media_type(path);
                let mut response = Response::memory(200, media_type, text, is_head);
                response.add_field("Cache-Control", "no-store");
                self.add_sandbox(&mut response, media_type);
                Ok(response)
            }
        }
    }

    /// A folder: its `index.html` if that is wanted, otherwise its listing.
    fn folder(
        &mut self,
        target: &Target<'_>,
        folder: std::os::fd::OwnedFd,
    ) -> Result<Response, Question> {
        let settings = &self.worker.shared.settings;
        let is_index = settings.renders_index || (settings.renders_spa && target.path.is_empty());
        if is_index && !target.query.has("archive") {
            let index = match target.path.as_slice() {
                b"" => INDEX.to_vec(),
                path => [path, b"/", INDEX].concat(),
            };
            return match self.find(&index)? {
                Ok(Place::File(served)) => self.file(target, &index, served),
                _ => Ok(self.error(404, "")),
            };
        }
        folder::answer(self, target, folder)
    }

    /// Nothing is there: the application's page if there is one, otherwise 404.
    fn missing(&mut self, target: &Target<'_>) -> Result<Response, Question> {
        if self.worker.shared.settings.renders_spa
            && let Ok(Place::File(served)) = self.find(INDEX)?
        {
            return self.file(target, INDEX, served);
        }
        Ok(self.error(404, ""))
    }

    /// The same folder, with the slash that links on its page need.
    pub(super) fn redirect(&self, target: &Target<'_>) -> Response {
        let mut response = self.error(301, "");
        response.add_field("Location", &slash_redirect(target.raw_path, target.query.raw));
        response
    }

    fn allow(&self) -> Response {
        let mut response = Response::empty(204);
        let changes = &self.worker.shared.settings.changes;
        response.add_field("Allow", changes::methods(changes));
        if changes.upload {
            // draft-ietf-httpbis-resumable-upload 4.1.4: so clients know that they may go on.
            response.add_field("Accept-Patch", PARTIAL_UPLOAD);
            response.add_field("Upload-Limit", &uploads::limits(changes).to_string());
        }
        if self.worker.shared.settings.cors {
            response.add_field("Access-Control-Allow-Methods", METHODS);
            response.add_field("Access-Control-Allow-Headers", "Authorization, *");
            response.add_field("Access-Control-Max-Age", "86400");
        }
        response
    }

    /// What went wrong, in the form that the client understands.
    pub(super) fn error(&self, status: u16, detail: &str) -> Response {
        let is_head = self.request.method == Method::Head;
        Response::error(status, detail, wants_html(self.request), is_head)
    }

    /// What the system refused.
    pub(super) fn failed(&self, error: &io::Error) -> Response {
        match Errno::from_io_error(error) {
            Some(errno) => self.refused(errno),
            None => self.error(500, ""),
        }
    }

    fn refused(&self, errno: Errno) -> Response {
        match errno {
            errno if is_missing(errno) => self.error(404, ""),
            Errno::ACCESS | Errno::PERM => self.error(403, ""),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::BUSY => {
                let is_busy = errno == Errno::BUSY;
                let what =
                    if is_busy { "the file is being written to" } else { "too much is going on" };
                let mut response = self.error(503, &format!("{what}; try again soon"));
                response.add_field("Retry-After", "1");
                response
            }
            _ => self.error(500, "the file cannot be read"),
        }
    }
}

/// Whether a path is one that files cannot have here.
pub(super) fn is_reserved(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').next() == Some(endpoints::PREFIX)
}

/// What scripts of other sites can do with files, if anything: whoever uses a browser here must
/// not have his files changed by a page that he happens to look at.
const METHODS: &str = "GET, HEAD, OPTIONS";

/// How often a file is opened that is replaced by another each time.
const ATTEMPTS: u32 = 4;

const INDEX: &[u8] = b"index.html";
