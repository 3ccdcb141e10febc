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
    /// Too many fetches and fills are running and waiting.
    Busy,
    /// The origin has another version now.
    Changed,
    /// No connection to the origin could be made, or it broke.
    Connection(ConnectionFault),
    /// The disk failed.
    Disk,
    /// The quota has no space for the object, and none can be freed.
    NoRoom,
    /// The origin has responded with something other than the object.
    Response(ResponseFault),
    /// A folder of the origin has more entries than can be listed.
    TooManyEntries,
}

/// What is wrong with the connection to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionFault {
    /// It broke before the end of the response.
    CutOff,
    /// The origin sent nothing for too long.
    TimedOut,
    /// TLS failed: in the handshake, or because the certificate is not trusted.
    Tls,
    /// The origin cannot be reached.
    Unreachable,
}

/// What is wrong with the response of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseFault {
    /// The origin denies access to this server.
    AccessDenied,
    /// It contradicts the request or itself, or is unusable.
    Invalid,
    /// It is something whole without a validator, possibly instead of an error.
    NoValidator,
    /// It redirects to a place that is not allowed.
    Redirected,
    /// It is a server error.
    ServerError,
}

impl CacheErrorKind {
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

    /// Returns whether the object cannot be stored now, but could be relayed.
    #[must_use]
    pub fn is_of_disk(self) -> bool {
        matches!(self, Self::Disk | Self::NoRoom)
    }

    /// Returns the status, the label, and the text.
    fn facts(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Busy => (503, "busy", "too many requests to the origin at once; try again soon"),
            Self::Changed => (502, "origin-changed", "the file has changed at the origin"),
            Self::Connection(fault) => fault.facts(),
            Self::Disk => (503, "disk", "the disk of the cache failed"),
            Self::NoRoom => (507, "no-room", "the cache has no room for it"),
            Self::Response(fault) => fault.facts(),
            Self::TooManyEntries => {
                (507, "too-many-entries", "this folder has more entries than this server lists")
            }
        }
    }

    /// Returns whether a retry may succeed.
    pub(crate) fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Connection(_)
                | Self::Response(ResponseFault::NoValidator | ResponseFault::ServerError)
        )
    }
}

impl ConnectionFault {
    /// Returns the status, the label, and the text.
    fn facts(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::CutOff => (504, "origin-cut-off", "the connection to the origin was lost"),
            Self::TimedOut => (504, "origin-timeout", "the origin did not answer in time"),
            Self::Tls => (502, "origin-tls", "no secure connection to the origin could be made"),
            Self::Unreachable => (504, "origin-unreachable", "the origin cannot be reached"),
        }
    }
}

impl ResponseFault {
    /// Returns the status, the label, and the text.
    fn facts(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::AccessDenied => (502, "origin-denied", "the origin denied access to this server"),
            Self::Invalid => (502, "origin-invalid", "the origin's answer cannot be used"),
            Self::NoValidator => (502, "origin-no-version", "the origin's answer has no version"),
            Self::Redirected => (502, "origin-redirects", "the origin redirects elsewhere"),
            Self::ServerError => (502, "origin-failed", "the origin failed"),
        }
    }
}

impl From<ConnectionFault> for CacheErrorKind {
    fn from(fault: ConnectionFault) -> Self {
        Self::Connection(fault)
    }
}

impl From<ResponseFault> for CacheErrorKind {
    fn from(fault: ResponseFault) -> Self {
        Self::Response(fault)
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
    /// Creates an error with its cause.
    pub(crate) fn new(
        kind: impl Into<CacheErrorKind>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self { kind: kind.into(), source: Some(Arc::new(source)) }
    }

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

impl<K: Into<CacheErrorKind>> From<K> for CacheError {
    fn from(kind: K) -> Self {
        Self { kind: kind.into(), source: None }
    }
}

impl From<&ClientError> for CacheErrorKind {
    fn from(error: &ClientError) -> Self {
        match error {
            ClientError::Connection(error) => kind_of(error),
            ClientError::Cancelled => ConnectionFault::Unreachable.into(),
            ClientError::TimedOut(_) => ConnectionFault::TimedOut.into(),
            ClientError::Url(_) => ResponseFault::Redirected.into(),
            _ => ResponseFault::Invalid.into(),
        }
    }
}

impl From<ClientError> for CacheError {
    fn from(error: ClientError) -> Self {
        Self::new(CacheErrorKind::from(&error), error)
    }
}

/// Returns the kind of an error of a connection to the origin.
fn kind_of(error: &ConnectionError) -> CacheErrorKind {
    match error {
        ConnectionError::Closed { .. }
        | ConnectionError::Network { action: NetworkAction::Receiving, .. } => {
            ConnectionFault::CutOff.into()
        }
        ConnectionError::Network { action: NetworkAction::Handshaking, source, .. }
            if source.kind() != io::ErrorKind::TimedOut =>
        {
            ConnectionFault::Tls.into()
        }
        ConnectionError::Tls { .. } => ConnectionFault::Tls.into(),
        ConnectionError::Network { .. } => ConnectionFault::Unreachable.into(),
        _ => ResponseFault::Invalid.into(),
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
