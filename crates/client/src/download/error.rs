//! How a download ends.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::time::Duration;

use underpass_engine::hint::{Action, Plain};
use underpass_engine::{Error, Report};
use underpass_transport::digest::DigestCheck;
use underpass_transport::incoming::ReceiveError;
use underpass_transport::tls::SessionFacts;

use crate::backoff::Retryable;
use crate::error::{ClientError, NetworkAction, is_of_network};

/// Why a download failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum DownloadError {
    /// Another process is fetching the same file to the same place.
    Busy,
    /// The file on the server changed too often while it was fetched, or changed after a part had
    /// been written to a stream.
    Changed,
    /// The request failed.
    Client(ClientError),
    /// The bytes could not be moved.
    Engine(Box<Error>),
    /// The file does not have the expected digest.
    Digest(Box<DigestCheck>),
    /// A different file with this name exists.
    Exists,
    /// A local file could not be written or read.
    Local {
        /// What was being done, such as `creating`.
        action: Action,
        /// The system's error.
        source: io::Error,
    },
    /// The server sends no digest to verify the file by.
    NoDigest,
    /// The file system has not enough space.
    NoRoom {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A partial file without a journal is in the way.
    Stranger {
        /// Its name.
        name: OsString,
        /// The name of its journal, if there is a damaged one.
        journal: Option<OsString>,
    },
}

/// What a successful download did.
#[derive(Clone, Debug, Default)]
pub struct DownloadOutcome {
    /// The bytes moved by all connections, and how.
    pub report: Report,
    /// The length of the file.
    pub size: u64,
    /// Bytes that were here before this run; the whole length if nothing had to be fetched.
    pub resumed_at: u64,
    /// The highest number of connections used at one time.
    pub connections: u32,
    /// Whether the file was here already.
    pub was_here: bool,
    /// The digests that were computed, and what was expected of them.
    pub facts: Vec<DigestCheck>,
    /// The TLS of the connection, if there was any.
    pub tls: Option<SessionFacts>,
}

/// A failed download, and what it leaves.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: DownloadError,
    /// The bytes moved until then.
    pub report: Box<Report>,
    /// The partial file that the next run can resume, if there is one.
    pub kept: Option<PartialInfo>,
    /// The TLS of the last connection, if there was any.
    pub tls: Option<Box<SessionFacts>>,
}

/// A partial file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialInfo {
    /// Its name, in the folder of the target.
    pub name: OsString,
    /// The number of bytes in it.
    pub bytes: u64,
}

impl DownloadError {
    /// Checks whether another server may have the file where this one failed.
    pub(super) fn is_of_source(&self) -> bool {
        match self {
            Self::Changed | Self::NoDigest => true,
            Self::Client(error) => !matches!(error, ClientError::Cancelled),
            _ => false,
        }
    }

    /// Converts an error from moving the body of an answer.
    pub(super) fn body(address: &str, error: ReceiveError) -> Self {
        let network = |source| ClientError::Network {
            action: NetworkAction::Receiving,
            address: address.to_owned(),
            source,
        };
        match error {
            ReceiveError::Ended => {
                let message = "the connection ended before the last byte";
                network(io::Error::new(io::ErrorKind::UnexpectedEof, message)).into()
            }
            ReceiveError::Engine(error) => match *error {
                Error::Io { source, .. } if is_of_network(&source) => network(source).into(),
                error => Self::Engine(Box::new(error)),
            },
            error => ClientError::receiving(address, error).into(),
        }
    }

    /// Checks whether another attempt may succeed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_temporary())
    }

    /// Returns how long the server asks to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Client(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Converts a system error that occurred during this action.
    pub(super) fn local<E: Into<io::Error>>(action: impl Into<Action>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::Local { action, source: source.into() }
    }
}

impl Retryable for DownloadError {
    fn of_request(&self) -> Option<&ClientError> {
        if let Self::Client(error) = self { Some(error) } else { None }
    }
}

impl From<ClientError> for DownloadError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl<E: Into<DownloadError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self { error: error.into(), report: Box::default(), kept: None, tls: None }
    }
}

impl fmt::Display for DownloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another process is fetching it to the same place"),
            Self::Changed => f.write_str("the file on the server changed while it was fetched"),
            Self::Client(error) => error.fmt(f),
            Self::Engine(error) => error.fmt(f),
            Self::Digest(fact) => {
                let found = fact.found.hex();
                match &fact.expected {
                    Some(expected) => {
                        write!(f, "its {} is {found}, not {}", expected.algorithm(), expected.hex())
                    }
                    None => write!(f, "its {} is {found}", fact.found.algorithm()),
                }
            }
            Self::Exists => f.write_str("a different file of this name exists"),
            Self::Local { action, source } => write!(f, "{action} it: {}", Plain(source)),
            Self::NoDigest => f.write_str("the server sends no digest to verify it by"),
            Self::NoRoom { needed, free } => {
                write!(f, "it needs {needed} bytes, and {free} are free")
            }
            Self::Stranger { name, journal: None } => {
                write!(f, "{} is in the way, and has no valid journal", name.display())
            }
            Self::Stranger { name, journal: Some(journal) } => {
                let (name, journal) = (name.display(), journal.display());
                write!(f, "{name} cannot be resumed: its journal {journal} is damaged")
            }
        }
    }
}

impl std::error::Error for DownloadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Client(error) => Some(error),
            Self::Engine(error) => Some(error),
            Self::Local { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
