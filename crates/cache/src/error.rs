//! The errors of the origin and the store.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use underpass_client::{ClientError, ConnectionError, NetworkAction};
use underpass_engine::hint::in_words;

/// The kind of a [`CacheError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheErrorKind {
    /// The origin's response contradicts the request or itself, or is unusable.
    InvalidResponse,
    /// Too many fetches and fills are running and waiting.
    Busy,
    /// The origin has another version now.
    Changed,
    /// The connection to the origin broke before the end of the response.
    CutOff,
    /// The origin denies access to this server.
    AccessDenied,
    /// The disk failed.
    Disk,
    /// The quota has no space for the object, and none can be freed.
    NoRoom,
    /// The origin sent something whole without a validator, possibly instead of an error.
    NoValidator,
    /// The origin answered with a server error.
    ServerError,
    /// The origin redirects to a place that is not allowed.
    Redirected,
    /// The origin sent nothing for too long.
    TimedOut,
    /// TLS with the origin failed: in the handshake, or because its certificate is not trusted.
    Tls,
    /// A folder of the origin has more entries than can be listed.
    TooManyEntries,
    /// The origin cannot be reached.
    Unreachable,
}

impl CacheErrorKind {
    /// Returns an error of this kind with its cause.
    pub(crate) fn with_source(self, source: impl Error + Send + Sync + 'static) -> CacheError {
        CacheError { kind: self, source: Some(Arc::new(source)) }
    }

    /// Returns the status for a client that has not received anything of the response yet.
    #[must_use]
    pub fn status(self) -> u16 {
        self.facts().0
    }

    /// Returns one word for `Cache-Status` and the log.
    #[must_use]
    pub fn label(self) -> &'static str {
        self.facts().1
    }

    /// Returns the status, the label, and the text.
    fn facts(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::InvalidResponse => (502, "origin-invalid", "the origin's answer cannot be used"),
            Self::Busy => (503, "busy", "too many requests to the origin at once; try again soon"),
            Self::Changed => (502, "origin-changed", "the file has changed at the origin"),
            Self::CutOff => (504, "origin-cut-off", "the connection to the origin was lost"),
            Self::AccessDenied => (502, "origin-denied", "the origin denied access to this server"),
            Self::Disk => (503, "disk", "the disk of the cache failed"),
            Self::NoValidator => (502, "origin-no-version", "the origin's answer has no version"),
            Self::NoRoom => (507, "no-room", "the cache has no room for it"),
            Self::ServerError => (502, "origin-failed", "the origin failed"),
            Self::Redirected => (502, "origin-redirects", "the origin redirects elsewhere"),
            Self::TimedOut => (504, "origin-timeout", "the origin did not answer in time"),
            Self::Tls => (502, "origin-tls", "no secure connection to the origin could be made"),
            Self::TooManyEntries => {
                (507, "too-many-entries", "this folder has more entries than this server lists")
            }
            Self::Unreachable => (504, "origin-unreachable", "the origin cannot be reached"),
        }
    }

    /// Returns whether a retry may succeed.
    pub(crate) fn is_transient(self) -> bool {
        matches!(
            self,
            Self::CutOff
                | Self::NoValidator
                | Self::ServerError
                | Self::TimedOut
                | Self::Tls
                | Self::Unreachable
        )
    }
}

impl fmt::Display for CacheErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.facts().2)
    }
}

/// The reason why an object, or the rest of it, cannot be served.
///
/// Its text is meant for clients; the cause, if the system or the connection reported one, is its
/// [`source`](Error::source). Cloning it is cheap, because several readers may share it.
#[derive(Clone, Debug)]
pub struct CacheError {
    kind: CacheErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl CacheError {
    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> CacheErrorKind {
        self.kind
    }

    /// Returns the text for the operator's log, including the cause.
    #[must_use]
    pub fn detail(&self) -> String {
        match &self.source {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl Error for CacheError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<CacheErrorKind> for CacheError {
    fn from(kind: CacheErrorKind) -> Self {
        Self { kind, source: None }
    }
}

impl From<ClientError> for CacheError {
    fn from(error: ClientError) -> Self {
        let kind = match error {
            ClientError::Connection(ref error) => kind_of(error),
            ClientError::Cancelled => CacheErrorKind::Unreachable,
            ClientError::TimedOut(_) => CacheErrorKind::TimedOut,
            ClientError::Url(_) => CacheErrorKind::Redirected,
            _ => CacheErrorKind::InvalidResponse,
        };
        kind.with_source(error)
    }
}

/// Returns the kind of an error of a connection to the origin.
fn kind_of(error: &ConnectionError) -> CacheErrorKind {
    match error {
        ConnectionError::Closed { .. }
        | ConnectionError::Network { action: NetworkAction::Receiving, .. } => {
            CacheErrorKind::CutOff
        }
        ConnectionError::Network { action: NetworkAction::Handshaking, source, .. }
            if source.kind() != io::ErrorKind::TimedOut =>
        {
            CacheErrorKind::Tls
        }
        ConnectionError::Tls { .. } => CacheErrorKind::Tls,
        ConnectionError::Network { .. } => CacheErrorKind::Unreachable,
        _ => CacheErrorKind::InvalidResponse,
    }
}

/// The reason why a cache cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another site of this process, uses the folder.
    #[error("{} is in use by another process or another site: give each its own", .0.display())]
    InUse(PathBuf),
    /// The folder is that of another version of this program, or has other contents.
    #[error("{} is not a cache folder: give an empty one", .0.display())]
    Format(PathBuf),
    /// A system call failed.
    #[error("{action} {}: {}", .path.display(), in_words(.source))]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}
