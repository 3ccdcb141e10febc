//! How a response ended, and what that is called.

use underpass_engine::{Error, Report, Usage};

use crate::archive::ArchiveError;

/// How a response ended.
#[derive(Debug, Default)]
pub(crate) struct SendOutcome {
    /// What was moved, the head included.
    pub(crate) report: Report,
    /// What that cost, if the log tells it.
    pub(crate) usage: Usage,
    /// Whether the metrics have counted it already.
    pub(crate) is_counted: bool,
    /// Why not everything was sent. The connection has to be closed, which resets it if anything
    /// was sent at all.
    pub(crate) failure: Option<Failure>,
}

/// Why not everything was sent.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A file of the folder is not what the archive's length was reckoned with.
    Archive(ArchiveError),
    /// The engine could not go on.
    Engine(Error),
    /// The client took nothing for too long.
    Stalled,
    /// The helper that makes the body failed.
    Stream,
}

impl Failure {
    /// One word for the access log.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Archive(_) | Self::Engine(Error::SourceChanged { .. }) => "changed",
            Self::Engine(Error::SourceEnded { .. }) => "shrank",
            Self::Engine(Error::Io { source, .. }) if is_of_the_client(source) => "reset",
            Self::Engine(_) | Self::Stream => "failed",
            Self::Stalled => "timeout",
        }
    }

    /// What the operator should know; nothing if it is the client's own doing.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            Self::Archive(error) => Some(error.to_string()),
            Self::Engine(Error::Io { source, .. }) if is_of_the_client(source) => None,
            Self::Engine(error) => Some(error.to_string()),
            Self::Stalled => None,
            Self::Stream => Some("the folder could not be read to its end".to_owned()),
        }
    }
}

fn is_of_the_client(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut)
}

impl SendOutcome {
    /// Whether the file was found changed before the first byte was sent, so that another answer
    /// can be.
    pub(crate) fn is_unsent_change(&self) -> bool {
        let is_change = matches!(&self.failure, Some(Failure::Engine(Error::SourceChanged { .. })));
        is_change && self.report.bytes() == 0
    }
}
