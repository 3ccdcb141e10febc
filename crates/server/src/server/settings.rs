//! The settings of a server, and the messages that it reports.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use underpass_engine::hint::in_words;
use underpass_engine::{Policy, Report};

use crate::server::credentials::Credentials;
use crate::server::proxies::TrustedProxies;
pub use crate::server::sites::settings::{Changes, PathHeader, SiteSettings};
use underpass_observe::access_log::LogFormat;
use underpass_protocol::request::host_map::HostPattern;
use underpass_protocol::response::head::BadField;

/// The settings of a server, and the sites that it begins with.
#[derive(Debug)]
pub struct Settings {
    /// The sites, of which the first default one answers requests for names that no site has.
    pub sites: Vec<SiteSettings>,
    /// The certificate for TLS, if TLS is used: at all addresses except Unix sockets. It is shown
    /// to clients that ask for no site with another certificate.
    pub tls: Option<Credentials>,
    /// The proxies whose headers about their clients are trusted.
    pub trusted_proxies: TrustedProxies,
    /// Whether connections of these proxies begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// The port at which clients without TLS are redirected to the port of TLS, at each address
    /// except Unix sockets; 0 for any free port.
    pub redirect_http: Option<u16>,
    /// The permissions of Unix sockets at a path that the server creates; `None` for those that the
    /// umask leaves. Anyone who can write to a socket can connect to it.
    pub socket_mode: Option<u32>,
    /// The number of threads that serve, each with its own runtime and listener; at least one.
    pub workers: usize,
    /// The maximum number of open connections. For one more, the connection of the same worker that
    /// has been idle the longest is closed; if none of these is idle, the new one gets a response
    /// that asks it to come back later.
    pub max_connections: usize,
    /// The maximum number of open connections of one address, if limited. An IPv6 address counts
    /// together with all that share its first 64 bits, and Unix sockets do not count.
    pub max_connections_per_address: Option<usize>,
    /// The time without any progress after which a connection is closed.
    pub timeout: Duration,
    /// The maximum rate of one connection in bytes per second.
    pub rate: Option<u64>,
    /// Whether pages that a transfer read from a disk are given back once the client has
    /// them, so that frequently read files stay in memory.
    pub drops_behind: bool,
    /// The mechanisms that may move the bytes.
    pub policy: Policy,
    /// The number of bytes requested in one system call, instead of the mechanism's own default.
    pub step: Option<usize>,
    /// The maximum number of entries in an archive, with all of its subfolders.
    pub max_archive_entries: usize,
    /// The format of the access log's lines; `None` for no access log.
    pub log: Option<LogFormat>,
    /// The time that transfers may take to end once the server is shutting down.
    pub drain: Duration,
}

impl Settings {
    /// Returns the settings of a server with one site that shows a folder or a file and allows no
    /// changes, with one worker, at most 1,024 connections and no access log. All other settings
    /// have the defaults of `underpass serve`.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self {
            sites: vec![SiteSettings::new(root)],
            tls: None,
            trusted_proxies: TrustedProxies::default(),
            proxy_protocol: false,
            redirect_http: None,
            socket_mode: None,
            workers: 1,
            max_connections: 1024,
            max_connections_per_address: None,
            timeout: Duration::from_secs(75),
            rate: None,
            drops_behind: false,
            policy: Policy::Auto,
            step: None,
            max_archive_entries: 1_000_000,
            log: None,
            drain: Duration::from_secs(25),
        }
    }
}

/// The reason why a server cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Listening on an address failed.
    #[error("listening on {address}: {}", in_words(.source))]
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The served folder or file cannot be opened.
    #[error("opening {}: {}", .path.display(), in_words(.source))]
    Root {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The sites exclude each other.
    #[error(transparent)]
    Sites(#[from] SitesError),
    /// A field that is to be added to responses is invalid.
    #[error(transparent)]
    Header(BadField),
    /// A pattern of names is invalid.
    #[error("{option} '{pattern}': {reason}")]
    Pattern {
        /// The option that has it.
        option: &'static str,
        /// The pattern.
        pattern: String,
        /// The reason.
        reason: String,
    },
    /// A thread or a runtime cannot be created.
    #[error("{action}: {}", in_words(.source))]
    Io {
        /// The failed action.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl ServeError {
    /// Returns the error of a pattern that an option has.
    pub(crate) fn pattern(option: &'static str, pattern: &str, reason: &dyn Display) -> Self {
        Self::Pattern { option, pattern: pattern.to_owned(), reason: reason.to_string() }
    }
}

/// The reason why sites cannot be served by one server.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SitesError {
    /// More than one is for all other names.
    #[error("two sites have default = true")]
    Defaults,
    /// Two have the same name.
    #[error("two sites have the name {0}")]
    SameName(HostPattern),
}

/// The totals of a server that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerSummary {
    /// The number of requests answered.
    pub requests: u64,
    /// The number of bytes sent, with the heads of responses.
    pub bytes: u64,
    /// The number of transfers that were cut off because the server had to end.
    pub cut_off: usize,
}

/// A message of a running server, other than lines of the access log.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerEvent {
    /// The server accepts no more connections and lets transfers end.
    Draining {
        /// The number of transfers in progress.
        open: usize,
    },
    /// The server has ended.
    Drained {
        /// The number of transfers that were cut off.
        left: usize,
    },
    /// Connections cannot be accepted at the moment; reported at most once a minute.
    AcceptFailed(io::Error),
    /// A fill of the cache has ended.
    Filled {
        /// The path at the origin.
        target: String,
        /// Host and port of the origin.
        origin: String,
        /// The mechanisms that moved the bytes.
        report: Box<Report>,
        /// The time that it took.
        elapsed: Duration,
        /// Whether they went to one client and were not stored.
        is_relay: bool,
        /// Why it was given up, if it was.
        failure: Option<String>,
    },
    /// Another program has removed the folder of the cache, or everything in it.
    CacheRemoved {
        /// The folder.
        folder: PathBuf,
        /// Whether it is used again, and empty; otherwise nothing is stored until the next start.
        is_usable: bool,
    },
    /// The disk of the cache takes no new objects, although it is not full. Reported once, and
    /// again after it has taken some.
    CannotStore {
        /// The folder.
        folder: PathBuf,
        /// The system's message.
        error: String,
    },
    /// An origin has not answered a request of the cache.
    OriginFailed {
        /// The path at the origin.
        target: String,
        /// The URL of the origin, without credentials.
        origin: String,
        /// The reason.
        reason: String,
    },
    /// A response was aborted because of its file, an upload by an error of the system, or the disk
    /// of a cache could not sync a file.
    Failed {
        /// The requested path.
        target: String,
        /// The reason, and what the client saw if it got no response.
        reason: String,
    },
}
