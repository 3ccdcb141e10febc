//! The results and errors of downloads.

use std::ffi::{OsStr, OsString};
use std::io;
use std::time::{Duration, SystemTime};

use underpass_engine::hint::{Action, Plain};
use underpass_engine::{Error, Report};
use underpass_transport::digest::DigestCheck;
use underpass_transport::incoming::ReceiveError;
use underpass_transport::tls::SessionFacts;

use super::interpret::StrongValidator;
use crate::backoff::Retryable;
use crate::error::{ClientError, InvalidResponse};

pub(super) type Result<T, E = DownloadError> = std::result::Result<T, E>;

/// The reason why a download failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownloadError {
    /// The file on the server changed too often while it was fetched, or changed after a part had
    /// been written to a stream.
    #[error("the file on the server changed while it was fetched")]
    Changed,
    /// The request failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The file does not have the expected digest.
    #[error("{}", digest_text(.0))]
    Digest(Box<DigestCheck>),
    /// The bytes could not be moved.
    #[error(transparent)]
    Engine(Box<Error>),
    /// A local file could not be written or read.
    #[error("{action} it: {}", Plain(.source))]
    Local {
        /// The action, such as `creating`.
        action: Action,
        /// The system's error.
        source: io::Error,
    },
    /// The server does not send something that is needed.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The file to be written, or its partial file, cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The file system lacks space.
    #[error("it needs {needed} bytes, but only {free} are free")]
    NoRoom {
        /// The number of bytes that are needed.
        needed: u64,
        /// The number of bytes that are free.
        free: u64,
    },
}

/// What a server does not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// The server sends no digest with which to verify the file.
    #[error("the server sends no digest, so the file cannot be verified")]
    Digest,
    /// The server sends the whole file although the missing part was requested.
    #[error("the server does not send the missing part of the file, only the whole")]
    Ranges,
    /// A part of the file has arrived, but the response is a whole without `ETag` and
    /// `Last-Modified`: it may be another file, such as an error page.
    #[error("the response has neither ETag nor Last-Modified, so it may be a different file")]
    Validator,
}

/// The reason why the file to be written, or its partial file, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Another process is fetching the same file to the same place.
    #[error("another process is downloading to the same file")]
    Busy,
    /// A different file with this name exists.
    #[error("a different file of this name exists")]
    Exists,
    /// A file with this name exists, and the server does not tell whether it is the same.
    #[error(
        "a file of this name exists, which may be the same: the server sends no size or no time"
    )]
    Incomparable,
    /// A file of no earlier download has the name of the partial file or its journal.
    #[error("{}", foreign_text(.name, .journal.as_deref()))]
    Foreign {
        /// Its name.
        name: OsString,
        /// The name of its journal, if there is one that is damaged or of another file.
        journal: Option<OsString>,
    },
    /// Another file replaced the partial one during the download, and is kept.
    #[error("another program has replaced its partial file")]
    Replaced,
    /// The target is a device, FIFO or socket.
    #[error("it is a device, FIFO or socket")]
    Special,
}

/// The result of a successful download.
#[derive(Clone, Debug, Default)]
pub struct DownloadOutcome {
    /// The bytes moved by all connections, and how.
    pub report: Report,
    /// The length of the file in bytes.
    pub size: u64,
    /// Bytes from earlier runs; the whole length if nothing had to be fetched.
    pub resumed_at: u64,
    /// The highest number of simultaneous connections.
    pub connections: u32,
    /// Whether the file existed already.
    pub was_here: bool,
    /// The version of the file, if the server identifies it.
    pub version: Option<StrongValidator>,
    /// The modification time according to the server.
    pub modified: Option<SystemTime>,
    /// The digests that were computed, and the expected ones.
    pub facts: Vec<DigestCheck>,
    /// The TLS of the connection, if there was any.
    pub tls: Option<SessionFacts>,
}

/// A failed download, and the state that it leaves.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct DownloadFailed {
    /// The error that ended it.
    #[source]
    pub error: DownloadError,
    /// The bytes moved until then.
    pub report: Box<Report>,
    /// The highest number of simultaneous connections.
    pub connections: u32,
    /// Bytes that had arrived in earlier runs.
    pub resumed_at: u64,
    /// The partial file that the next run can resume, if there is one.
    pub kept: Option<Box<PartialInfo>>,
    /// The TLS of the last connection, if there was any.
    pub tls: Option<Box<SessionFacts>>,
}

/// A partial file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialInfo {
    /// Its name, in the folder of the target.
    pub name: Box<OsStr>,
    /// The number of bytes in it.
    pub bytes: u64,
}

impl DownloadError {
    /// Returns whether another server may have the file although this one failed.
    pub(super) fn is_of_source(&self) -> bool {
        match self {
            Self::Changed | Self::Missing(_) => true,
            Self::Client(error) => !matches!(error, ClientError::Cancelled),
            _ => false,
        }
    }

    /// Returns whether the server refuses this request, but may still serve others.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Client(ClientError::Status { .. }))
    }

    /// Converts an error that occurred while moving the body of a response.
    pub(super) fn body(address: &str, error: ReceiveError) -> Self {
        match ClientError::receiving(address, error) {
            ClientError::InvalidResponse(InvalidResponse::Body(ReceiveError::Engine(error))) => {
                Self::Engine(error)
            }
            error => error.into(),
        }
    }

    /// Returns whether existing files with the names of the download are the reason.
    pub(crate) fn is_about_name(&self) -> bool {
        matches!(self, Self::Target(error) if !matches!(error, TargetError::Busy))
    }

    /// Returns whether another attempt may succeed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Client(error) => error.is_temporary(),
            Self::Missing(Missing::Validator) => true,
            _ => false,
        }
    }

    /// Returns how long the server asks the client to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Client(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Converts a system error that occurred during `action`.
    pub(super) fn local<E: Into<io::Error>>(action: impl Into<Action>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::Local { action, source: source.into() }
    }
}

impl Retryable for DownloadError {
    fn of_request(&self) -> Option<&ClientError> {
        if let Self::Client(error) = self { Some(error) } else { None }
    }

    fn may_pass(&self) -> bool {
        self.is_temporary()
    }
}

impl<E: Into<DownloadError>> From<E> for DownloadFailed {
    fn from(error: E) -> Self {
        let (report, kept, tls) = (Box::default(), None, None);
        Self { error: error.into(), report, connections: 0, resumed_at: 0, kept, tls }
    }
}

fn digest_text(check: &DigestCheck) -> String {
    let (algorithm, found) = (check.found.algorithm(), check.found.hex());
    match &check.expected {
        Some(expected) => format!("its {algorithm} is {found}, not {}", expected.hex()),
        None => format!("its {algorithm} is {found}"),
    }
}

fn foreign_text(name: &OsStr, journal: Option<&OsStr>) -> String {
    let name = name.display();
    match journal.map(OsStr::display) {
        Some(journal) => format!(
            "{name} cannot be resumed: its journal {journal} is damaged, or of another file"
        ),
        None => format!("{name} is in the way: it belongs to no download that can be resumed"),
    }
}
