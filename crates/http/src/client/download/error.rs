//! Why a download failed.

use std::fmt;
use std::io;

use underpass_engine::{Error, Report};

use crate::client::ClientError;

/// Why a download failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum DownloadError {
    /// Another process is about to fetch the same file to the same place.
    Busy,
    /// The file on the server changed again and again while it was fetched, or changed after a
    /// part of it had gone where it cannot be taken back from.
    Changed,
    /// The server could not be asked, or its answer not be used.
    Client(ClientError),
    /// The bytes could not be moved.
    Engine(Box<Error>),
    /// There is a file of this name, and it is not the same.
    Exists,
    /// Something about a file of ours.
    Local {
        /// What was being done, such as `creating`.
        action: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// There is not enough room for it.
    NoRoom {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A partial file is in the way that nothing is known about.
    Stranger,
}

/// A download that failed, and what it leaves.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: DownloadError,
    /// What was moved up to then.
    pub report: Box<Report>,
    /// Bytes that are kept beside the target, to be gone on with.
    pub kept: Option<u64>,
}

impl DownloadError {
    /// An error of the system while something was done with a file.
    pub(super) fn local<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Local { action, source: source.into() }
    }
}

impl From<ClientError> for DownloadError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl<E: Into<DownloadError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self { error: error.into(), report: Box::default(), kept: None }
    }
}

impl fmt::Display for DownloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another process is fetching it to the same place"),
            Self::Changed => f.write_str("the file on the server changed while it was fetched"),
            Self::Client(error) => error.fmt(f),
            Self::Engine(error) => error.fmt(f),
            Self::Exists => f.write_str("there is a file of this name, and it is not the same"),
            Self::Local { action, source } => write!(f, "{action} it: {source}"),
            Self::NoRoom { needed, free } => {
                write!(f, "it needs {needed} bytes, and {free} are free")
            }
            Self::Stranger => f.write_str("a partial file is in the way that has no journal"),
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
