//! The settings of a server, and the messages that it reports.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use underpass_cache::Cache;
use underpass_engine::{Integrity, Policy, Report};

use crate::auth::Access;
use crate::server::credentials::Credentials;
use crate::server::proxies::TrustedProxies;
use underpass_observe::access_log::LogFormat;
use underpass_protocol::response::head::BadField;
use underpass_protocol::response::media_types::MediaTypes;

/// The settings of a server.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own that users set
pub struct Settings {
    /// The folder whose files are served, or a single file.
    pub root: PathBuf,
    /// The certificate for TLS, if TLS is used: at all addresses except unix sockets.
    pub tls: Option<Credentials>,
    /// The proxies whose word about their clients is believed.
    pub trusted_proxies: TrustedProxies,
    /// Whether connections of these proxies begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// The port at which clients without TLS are redirected to the port of TLS, at each address
    /// except unix sockets; 0 for any free port.
    pub redirect_http: Option<u16>,
    /// The number of threads that serve, each with a runtime and a listener of its own; at least
    /// one.
    pub workers: usize,
    /// The maximum number of open connections. For one more, the connection that has been idle the
    /// longest is closed; if none is idle, the new one gets a response that asks it to come back
    /// later.
    pub max_connections: usize,
    /// The maximum number of open connections of one address, if limited. An IPv6 address counts
    /// together with all that share its first 64 bits, and unix sockets do not count.
    pub max_connections_per_address: Option<usize>,
    /// The time without any progress after which a connection is closed.
    pub timeout: Duration,
    /// The maximum rate of one connection in bytes per second.
    pub rate: Option<u64>,
    /// Whether pages that a transfer brought in from a disk are given back once the client has
    /// them, so that frequently read files stay in memory.
    pub drops_behind: bool,
    /// The checks that ensure that the bytes of a response are of one version of the file.
    pub integrity: Integrity,
    /// The mechanisms that may move the bytes.
    pub policy: Policy,
    /// The number of bytes requested in one system call, instead of the mechanism's own default.
    pub step: Option<usize>,
    /// The access rules for users and paths.
    pub access: Access,
    /// The names that requests without a password may use as the host, besides `localhost`,
    /// addresses and those of this machine; `*` for any. Names are checked at addresses that only
    /// this machine can reach, and at all addresses if any names are set here.
    pub allowed_hosts: Vec<String>,
    /// Patterns of names that are not served; a pattern with a slash is matched with the whole
    /// path.
    pub hide: Vec<String>,
    /// Whether names that begin with a dot are served.
    pub shows_hidden: bool,
    /// Whether symbolic links may lead out of the root.
    pub allows_symlinks_outside: bool,
    /// The value of `Cache-Control` for files.
    pub cache_control: Option<String>,
    /// Fields added to every response.
    pub headers: Vec<(String, String)>,
    /// Fields added to the responses about some files.
    pub path_headers: Vec<PathHeader>,
    /// The media types of files by their extensions.
    pub media_types: MediaTypes,
    /// Whether scripts of other sites may read what is served.
    pub cors: bool,
    /// Whether scripts in served files run as pages of this server even if users may change files
    /// or have passwords.
    pub allows_scripts: bool,
    /// Whether a request for a folder is answered with its `index.html`.
    pub renders_index: bool,
    /// Whether a request for a missing path is answered with the root's `index.html`.
    pub renders_spa: bool,
    /// The prefix of all request paths: empty, or `/a/b`.
    pub path_prefix: String,
    /// The changes that clients may make.
    pub changes: Changes,
    /// Whether folders are listed.
    pub listing: bool,
    /// Whether folders can be downloaded as tar or zip archives.
    pub archive: bool,
    /// The maximum number of entries in an archive, with all of its subfolders.
    pub max_archive_entries: usize,
    /// Whether `/.underpass/health` answers.
    pub health: bool,
    /// Whether `/.underpass/metrics` answers.
    pub metrics: bool,
    /// Whether `/.underpass/transfers` answers.
    pub transfers: bool,
    /// The format of the access log's lines; `None` for no access log.
    pub log: Option<LogFormat>,
    /// The cache from which every request is answered, if the server stands before an origin.
    pub cache: Option<Cache>,
    /// The time that transfers may take to end once the server is to end.
    pub drain: Duration,
}

/// A field for the files whose path below the root matches a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathHeader {
    /// The pattern; one without a slash is matched with the name alone.
    pub pattern: String,
    /// The name of the field. `Content-Type` replaces the media type of the file.
    pub name: String,
    /// The value of the field.
    pub value: String,
}

impl Settings {
    /// Returns the settings of a server that shows a folder or a file and allows no changes, with
    /// one worker, at most 1,024 connections and no access log. Everything else is as `underpass
    /// serve` has it by default.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            tls: None,
            trusted_proxies: TrustedProxies::default(),
            proxy_protocol: false,
            cache: None,
            redirect_http: None,
            workers: 1,
            max_connections: 1024,
            max_connections_per_address: None,
            timeout: Duration::from_secs(60),
            rate: None,
            drops_behind: false,
            integrity: Integrity::Detect,
            policy: Policy::Auto,
            step: None,
            access: Access::default(),
            allowed_hosts: Vec::new(),
            hide: Vec::new(),
            shows_hidden: false,
            allows_symlinks_outside: false,
            cache_control: None,
            headers: Vec::new(),
            path_headers: Vec::new(),
            media_types: MediaTypes::default(),
            cors: false,
            allows_scripts: false,
            renders_index: false,
            renders_spa: false,
            path_prefix: String::new(),
            changes: Changes { min_rate: 500, ..Changes::default() },
            listing: true,
            archive: true,
            max_archive_entries: 1_000_000,
            health: true,
            metrics: true,
            transfers: true,
            log: None,
            drain: Duration::from_secs(25),
        }
    }

    /// Returns whether folders are listed: an origin has to be an object store for that.
    pub(crate) fn lists_folders(&self) -> bool {
        self.listing && self.cache.as_ref().is_none_or(Cache::has_stores)
    }
}

/// The changes that clients with the right to write may make.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    /// Whether files may be uploaded where there are none, and folders be made. Existing files may
    /// be replaced, too.
    pub upload: bool,
    /// Whether files and folders may be removed, or moved away.
    pub delete: bool,
    /// The maximum size of one file in bytes.
    pub limit: Option<u64>,
    /// Whether missing parent folders of an uploaded file are made.
    pub create_parents: bool,
    /// Whether a change is on the disk before the client gets the response.
    pub sync: bool,
    /// The time during which an interrupted upload can be resumed.
    pub expiry: Duration,
    /// The rate in bytes per second that the body of an upload must reach on average over
    /// [`timeout`](Settings::timeout); 0 for no such limit.
    pub min_rate: u64,
    /// The space that uploads and copies leave free on the disk.
    pub min_free: MinFree,
}

/// The space of a file system that is left free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinFree {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the whole file system.
    Percent(u8),
}

impl Default for Changes {
    /// Returns a value that leaves nothing free.
    fn default() -> Self {
        let expiry = Duration::from_secs(24 * 60 * 60);
        Self {
            upload: false,
            delete: false,
            limit: None,
            create_parents: false,
            sync: true,
            expiry,
            min_rate: 0,
            min_free: MinFree::Bytes(0),
        }
    }
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address of this machine, and a port; 0 for any free port.
    Tcp(SocketAddr),
    /// A path in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The reason why a server cannot serve.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// Listening on an address failed.
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The served folder or file cannot be opened.
    Root {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A field that is to be added to responses is invalid.
    Header(BadField),
    /// A pattern of names is invalid.
    Pattern {
        /// The pattern.
        pattern: String,
        /// The error in the pattern.
        source: globset::Error,
    },
    /// A thread or a runtime cannot be created.
    Io {
        /// The failed action.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, source } => write!(f, "listening on {address}: {source}"),
            Self::Root { path, source } => write!(f, "opening {}: {source}", path.display()),
            Self::Header(fault) => fault.fmt(f),
            Self::Pattern { pattern, source } => write!(f, "pattern {pattern}: {}", source.kind()),
            Self::Io { action, source } => write!(f, "{action}: {source}"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { source, .. } | Self::Root { source, .. } | Self::Io { source, .. } => {
                Some(source)
            }
            Self::Header(fault) => Some(fault),
            Self::Pattern { source, .. } => Some(source),
        }
    }
}

/// The totals of a server that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
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
        /// The number of transfers under way.
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
        /// How the bytes were moved.
        report: Box<Report>,
        /// How long that took.
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
    /// A response was aborted because of its file; the client has seen a reset.
    Failed {
        /// The requested path.
        target: String,
        /// The reason.
        reason: String,
    },
}
