//! How an upload ended.

use std::fmt;
use std::io;

use underpass_engine::hint::Plain;
use underpass_engine::{Error, Report};
use url::Url;

use crate::client::error::ClientError;
use crate::tls::Facts;

/// An upload that the server has accepted.
#[derive(Clone, Debug)]
pub struct Uploaded {
    /// The status: 201 for something new, 200 or 204 for something replaced.
    pub status: u16,
    /// Whether nothing was sent because the target exists and was not to be replaced.
    pub was_there: bool,
    /// Whether the status says that something was replaced, or created, against the condition: a
    /// server that ignores the condition, or one that always answers with this status.
    pub is_suspicious: bool,
    /// The address that took it, to which redirects may have led.
    pub url: Url,
    /// What was moved. Its memory is what the requests had around their bodies.
    pub report: Report,
    /// Bytes that the server had before.
    pub resumed_at: u64,
    /// Whether a broken upload could have been gone on with.
    pub is_resumable: bool,
    /// What is known of the TLS that it went over, if it did.
    pub tls: Option<Facts>,
}

/// Why an upload failed, and what is left of it.
#[derive(Debug)]
pub struct UploadFailed {
    /// Why.
    pub error: UploadError,
    /// What was moved.
    pub report: Box<Report>,
    /// Whether the same upload can go on from where it was.
    pub is_kept: bool,
    /// What is known of the TLS that it was sent over last, if it was.
    pub tls: Option<Box<Facts>>,
}

impl UploadFailed {
    /// Whether it is the fault of this file alone, so that others may still be sent.
    #[must_use]
    pub fn is_of_this_file(&self) -> bool {
        match &self.error {
            UploadError::Client(error) => matches!(error, ClientError::Status { .. }),
            UploadError::Broken(_) | UploadError::Journal(_) => false,
            UploadError::Source(_)
            | UploadError::PartlyThere
            | UploadError::Precondition { .. }
            | UploadError::Spent
            | UploadError::UnderWay
            | UploadError::Early { .. } => true,
        }
    }
}

impl fmt::Display for UploadFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for UploadFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Why an upload failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum UploadError {
    /// The server could not be asked, or said no.
    Client(ClientError),
    /// The connection broke in the middle of the body.
    Broken(Box<Error>),
    /// The source ended early, changed, or could not be read.
    Source(Box<Error>),
    /// Only something new was to be uploaded, an attempt broke off, and now something is there.
    PartlyThere,
    /// The target is not the version that was to be replaced.
    Precondition {
        /// The entity tag that it has; nothing is there if it is `None`.
        found: Option<String>,
    },
    /// The server wants the bytes of a stream again, which gives them only once.
    Spent,
    /// Another process uploads the same file to the same place.
    UnderWay,
    /// What is needed to go on later cannot be written down.
    Journal(io::Error),
    /// The server said that all is well before it had everything.
    Early {
        /// What it said.
        status: u16,
    },
}

impl UploadError {
    /// Whether the same may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Client(error) => error.is_temporary(),
            Self::Broken(_) => true,
            _ => false,
        }
    }

    /// The status, if the server said no.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Client(ClientError::Status { status, .. }) => Some(*status),
            _ => None,
        }
    }

    /// Whether somebody asked to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        match self {
            Self::Client(error) => matches!(error, ClientError::Cancelled),
            Self::Broken(error) | Self::Source(error) => matches!(**error, Error::Cancelled { .. }),
            _ => false,
        }
    }
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Broken(error) | Self::Source(error) => error.fmt(f),
            Self::PartlyThere => {
                f.write_str("the target exists now; it may be a part that an earlier attempt left")
            }
            Self::Precondition { found: Some(tag) } => {
                write!(f, "the target is another version, with the entity tag {tag}")
            }
            Self::Precondition { found: None } => f.write_str("nothing is at the target"),
            Self::Spent => {
                f.write_str("the server wants it again, but a stream gives its bytes only once")
            }
            Self::UnderWay => f.write_str("another process is uploading it to the same address"),
            Self::Journal(error) => write!(f, "writing the journal: {}", Plain(error)),
            Self::Early { status } => {
                write!(f, "the server answered {status} before it had the whole file")
            }
        }
    }
}

impl std::error::Error for UploadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Client(error) => Some(error),
            Self::Broken(error) | Self::Source(error) => Some(error),
            Self::Journal(error) => Some(error),
            Self::PartlyThere
            | Self::Precondition { .. }
            | Self::Spent
            | Self::UnderWay
            | Self::Early { .. } => None,
        }
    }
}

impl From<ClientError> for UploadError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}
