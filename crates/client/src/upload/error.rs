//! The results and errors of uploads.

use underpass_engine::{Error, Report};
use underpass_transport::tls::SessionFacts;
use url::Url;

use crate::backoff::Retryable;
use crate::error::ClientError;

/// A successful upload.
#[derive(Clone, Debug)]
pub struct UploadOutcome {
    /// The status: 201 for a new file, 200 or 204 for a replaced one.
    pub status: u16,
    /// Whether nothing was sent because the target exists and must not be replaced.
    pub was_there: bool,
    /// Whether the status contradicts the condition: the server may ignore the condition, or always
    /// answer with this status.
    pub may_have_replaced: bool,
    /// The URL that accepted it, after redirects.
    pub url: Url,
    /// The bytes moved, and how. Those from memory are the heads and chunk lines.
    pub report: Report,
    /// Bytes that were read for the digests of parts; the caller computes that of the whole file.
    pub digest_bytes: u64,
    /// Bytes that the server had from earlier runs.
    pub resumed_at: u64,
    /// Whether the server can resume uploads.
    pub is_resumable: bool,
    /// The TLS of the connection, if there was any.
    pub tls: Option<SessionFacts>,
}

impl UploadOutcome {
    /// Returns the outcome for a file that is not sent, because the server has it already.
    #[must_use]
    pub fn already_there(url: Url) -> Self {
        Self {
            status: 200,
            was_there: true,
            may_have_replaced: false,
            url,
            report: Report::default(),
            digest_bytes: 0,
            resumed_at: 0,
            is_resumable: false,
            tls: None,
        }
    }
}

/// A failed upload, and the state that it leaves.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct UploadFailed {
    /// The error that ended it.
    #[source]
    pub error: UploadError,
    /// The bytes moved, and how.
    pub report: Box<Report>,
    /// Bytes that the server had from earlier runs.
    pub resumed_at: u64,
    /// Whether the same command can resume the upload.
    pub is_kept: bool,
    /// The TLS of the last connection, if there was any.
    pub tls: Option<Box<SessionFacts>>,
}

impl UploadFailed {
    /// Creates the failure of an upload that has moved nothing.
    #[must_use]
    pub fn before_sending(error: impl Into<UploadError>) -> Self {
        Self::new(error.into(), Report::default(), 0, false, None)
    }

    /// Creates the failure of an upload that has moved these bytes and began with `resumed_at`.
    pub(crate) fn new(
        error: UploadError,
        report: Report,
        resumed_at: u64,
        is_kept: bool,
        tls: Option<SessionFacts>,
    ) -> Self {
        Self { error, report: Box::new(report), resumed_at, is_kept, tls: tls.map(Box::new) }
    }

    /// Returns whether the failure concerns only this file, so that others may still be sent: not
    /// if the server requires credentials or has no space left.
    #[must_use]
    pub fn is_of_this_file(&self) -> bool {
        match &self.error {
            UploadError::Client(ClientError::Status { status, .. }) => {
                !matches!(status, 401 | 407 | 507)
            }
            UploadError::Client(_) | UploadError::Broken(_) => false,
            UploadError::Condition(_)
            | UploadError::NoLength
            | UploadError::Source(_)
            | UploadError::Spent
            | UploadError::Unconfirmed(_)
            | UploadError::UnderWay => true,
        }
    }
}

pub(super) type Result<T, E = UploadError> = std::result::Result<T, E>;

/// The reason why an upload failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    /// The request failed, or the server refused it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The connection broke in the middle of the body.
    #[error(transparent)]
    Broken(Box<Error>),
    /// The source ended early, changed, or could not be read.
    #[error(transparent)]
    Source(Box<Error>),
    /// The target does not meet the condition of the upload.
    #[error(transparent)]
    Condition(#[from] ConditionError),
    /// The length is unknown, but object stores require it.
    #[error("its length is unknown, and object stores require it")]
    NoLength,
    /// The server's response does not confirm that it has the file.
    #[error(transparent)]
    Unconfirmed(#[from] UnconfirmedUpload),
    /// The upload must start over, but a stream can only be read once.
    #[error("the upload has to start over, but a stream can be read only once")]
    Spent,
    /// Another process is uploading the same file to the same URL.
    #[error("another process is uploading it to the same address")]
    UnderWay,
}

/// The reason why a target does not meet the condition of an upload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// A certain version of the target is to be replaced, but the server sends no entity tag.
    #[error("the target has no entity tag, so it is unknown which version it is")]
    NoTag,
    /// The target must not exist, but exists after an attempt that broke off.
    #[error("the target exists now, and may be an incomplete file from an earlier attempt")]
    PartlyThere,
    /// The target is not the version to be replaced.
    #[error("{}", precondition_text(.found.as_deref()))]
    Precondition {
        /// Its entity tag; `None` if the target does not exist.
        found: Option<String>,
    },
}

/// The reason why it is unknown whether a server has a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnconfirmedUpload {
    /// The server answered with success before it had the whole file.
    #[error("the server answered {status} before it had the whole file")]
    Early {
        /// Its status.
        status: u16,
    },
    /// The target is the whole file, but the server has reported a failure.
    #[error("the server received the whole file and then failed: {failure}")]
    Failure {
        /// The server's refusal.
        failure: String,
    },
    /// The server answered with a page, and the target is missing or has another length.
    #[error("the server answered 200 with a page, but it does not have the file")]
    NotStored,
    /// The server redirected to a page, such as a login, so it is unknown if the target exists.
    #[error("the server answers with a page, {url}, so it is unknown whether the target exists")]
    Page {
        /// Its URL, without a password.
        url: String,
    },
}

impl UploadError {
    /// Returns whether a retry may succeed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Client(error) => error.is_temporary(),
            Self::Broken(_) => true,
            _ => false,
        }
    }

    /// Returns the status, if the server refused the request.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Client(ClientError::Status { status, .. }) => Some(*status),
            _ => None,
        }
    }

    /// Returns whether the server gave a reason for its refusal.
    pub(crate) fn is_explained(&self) -> bool {
        matches!(self, Self::Client(ClientError::Status { detail, .. }) if !detail.is_empty())
    }

    /// Returns whether the upload was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        match self {
            Self::Client(error) => matches!(error, ClientError::Cancelled),
            Self::Broken(error) | Self::Source(error) => matches!(**error, Error::Cancelled { .. }),
            _ => false,
        }
    }
}

impl Retryable for UploadError {
    fn of_request(&self) -> Option<&ClientError> {
        if let Self::Client(error) = self { Some(error) } else { None }
    }

    fn may_pass(&self) -> bool {
        self.is_temporary()
    }
}

fn precondition_text(found: Option<&str>) -> String {
    match found {
        Some(tag) => format!("the target is another version, with the entity tag {tag}"),
        None => "the target does not exist".to_owned(),
    }
}
