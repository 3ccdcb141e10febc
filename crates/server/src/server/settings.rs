//! What a server is told before it starts, and what it has to tell.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use underpass_engine::{Integrity, Policy};

use crate::auth::Access;
use crate::head::BadField;
use crate::observe::access_log::LogFormat;
use crate::server::credentials::Credentials;

/// What is served, and how.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own that users set
pub struct Settings {
    /// The folder whose files are served, or the one file.
    pub root: PathBuf,
    /// With which certificate TLS is spoken, if it is: at all addresses but sockets in the file
    /// system.
    pub tls: Option<Credentials>,
    /// The port at which clients without TLS are sent to that of TLS, at each address that is no
    /// socket in the file system; 0 for any that is free.
    pub redirect_http: Option<u16>,
    /// How many threads serve, each with a runtime and a listener of its own; at least one.
    pub workers: usize,
    /// How many connections may be open at once. For one more the longest idle one is closed; if
    /// none is idle, the new one is told to come back later.
    pub max_connections: usize,
    /// How many connections one address may have open at once, if that is limited. An IPv6 address
    /// counts with all that share its first 64 bits, and unix sockets do not count.
    pub max_connections_per_address: Option<usize>,
    /// A connection without any progress for so long is closed.
    pub timeout: Duration,
    /// Bytes a second that one connection is sent at the most.
    pub rate: Option<u64>,
    /// Whether pages that a transfer brought in from a disk are given back once the client has
    /// them, so that what many read often stays in memory.
    pub drops_behind: bool,
    /// How sure a response has to be that its bytes are of one version of the file.
    pub integrity: Integrity,
    /// Which mechanisms may move the bytes.
    pub policy: Policy,
    /// Bytes asked for in one system call, instead of the mechanism's own default.
    pub step: Option<usize>,
    /// Who may read what.
    pub access: Access,
    /// Names that requests without a password may name as the host, besides `localhost`, addresses
    /// and those of this machine; `*` for any. Names are looked at where only this machine can
    /// connect, and everywhere if there are any here.
    pub allowed_hosts: Vec<String>,
    /// Patterns of names that are not served; one with a slash is compared with the whole path.
    pub hide: Vec<String>,
    /// Whether names that begin with a dot are served.
    pub shows_hidden: bool,
    /// Whether symbolic links may lead out of the root.
    pub allows_symlinks_outside: bool,
    /// The `Cache-Control` of files.
    pub cache_control: Option<String>,
    /// Fields added to every response.
    pub headers: Vec<(String, String)>,
    /// Whether scripts of other sites may read what is served.
    pub cors: bool,
    /// Whether files with scripts in them act as pages of this server even where somebody may
    /// change files or has a password.
    pub allows_scripts: bool,
    /// Whether a folder is answered by its `index.html`.
    pub renders_index: bool,
    /// Whether a path that does not exist is answered by the root's `index.html`.
    pub renders_spa: bool,
    /// What the paths of all requests begin with: empty, or `/a/b`.
    pub path_prefix: String,
    /// What may be changed.
    pub changes: Changes,
    /// Whether folders are listed.
    pub listing: bool,
    /// Whether folders can be had as a tar archive.
    pub archive: bool,
    /// How many entries the folder of an archive may have, all folders in it included.
    pub max_archive_entries: usize,
    /// Whether `/.underpass/health` answers.
    pub health: bool,
    /// Whether `/.underpass/metrics` answers.
    pub metrics: bool,
    /// Whether `/.underpass/transfers` answers.
    pub transfers: bool,
    /// How a line of the access log looks; without, there is none.
    pub log: Option<LogFormat>,
    /// How long transfers may go on once the server is told to end.
    pub drain: Duration,
}

/// What may be changed, by those who have the right to write.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    /// Whether files may be put where there are none, and folders be made. What is there may be
    /// replaced, too.
    pub upload: bool,
    /// Whether files and folders may be removed, or moved away.
    pub delete: bool,
    /// Bytes that one file may have.
    pub limit: Option<u64>,
    /// Whether folders on the way to a file that is put are made.
    pub create_parents: bool,
    /// Whether a change is on the disk before it is told.
    pub sync: bool,
    /// How long an upload that was broken off can be gone on with.
    pub expiry: Duration,
    /// Bytes a second that the body of an upload has to bring on average over
    /// [`timeout`](Settings::timeout); 0 for no such limit.
    pub min_rate: u64,
    /// What is left free on the disk by uploads and copies.
    pub min_free: MinFree,
}

/// How much of a file system is left free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinFree {
    /// This many bytes.
    Bytes(u64),
    /// This many hundredths of the whole file system.
    Percent(u8),
}

impl Default for Changes {
    /// Nothing.
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

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address of this machine, and a port; 0 for any that is free.
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

/// Why a server cannot serve.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// Nobody can connect there.
    Listen {
        /// The address.
        address: String,
        /// What the system answered.
        source: io::Error,
    },
    /// What should be served cannot be opened.
    Root {
        /// Its path.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// A field to be added to responses cannot be.
    Header(BadField),
    /// A pattern of names to hide means nothing.
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: globset::Error,
    },
    /// A thread or a runtime cannot be had.
    Io {
        /// What was being done.
        action: &'static str,
        /// What the system answered.
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

/// What a server has done when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Requests answered.
    pub requests: u64,
    /// Bytes of bodies sent.
    pub bytes: u64,
    /// Transfers that were cut off because the server had to end.
    pub cut_off: usize,
}

/// What a server has to tell while it runs, besides the access log.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note {
    /// It accepts no more connections and lets transfers end.
    Draining {
        /// Transfers that are under way.
        open: usize,
    },
    /// It has ended.
    Drained {
        /// Transfers that were cut off.
        left: usize,
    },
    /// Connections cannot be accepted for the moment; told once a minute at the most.
    AcceptFailed(io::Error),
    /// A response was broken off because of its file; the client has seen a reset.
    Failed {
        /// The path asked for.
        target: String,
        /// What happened.
        reason: String,
    },
}
