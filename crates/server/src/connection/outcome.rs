//! The outcome of sending a response.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use underpass_engine::{Error, Report, Usage};

use crate::archive::ArchiveError;

/// The outcome of sending a response.
#[derive(Debug, Default)]
pub(crate) struct SendOutcome {
    /// The report of the moved bytes, the head included.
    pub(crate) report: Report,
    /// The cost of moving them, if the log needs it. Boxed, because outcomes are moved and those of
    /// small responses have none.
    pub(crate) usage: Option<Box<Usage>>,
    /// The time spent waiting for an origin.
    pub(crate) waited: Duration,
    /// Whether the metrics have counted it already.
    pub(crate) is_counted: bool,
    /// The reason why not everything was sent. The connection has to be closed, which resets it if
    /// anything was sent at all.
    pub(crate) failure: Option<SendFailure>,
}

/// The reason why not everything was sent.
#[derive(Debug)]
pub(crate) enum SendFailure {
    /// The archive failed, for example because a file has changed since it was laid out.
    Archive(ArchiveError),
    /// A file that was sent earlier was changed before the client had read it.
    Changed,
    /// The engine failed.
    Engine(Error),
    /// The client left during a wait, or the server is shutting down.
    Left,
    /// The origin will not deliver the rest.
    Origin(underpass_cache::CacheError),
    /// A helper that prepares the body has panicked.
    Panicked,
    /// The body had fewer bytes than the head promised.
    Short,
    /// The client read nothing for too long.
    Stalled,
    /// The helper that makes the body failed.
    Stream,
}

impl SendFailure {
    /// Returns the label for the access log and the metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Archive(_) | Self::Changed | Self::Engine(Error::SourceChanged { .. }) => {
                "changed"
            }
            Self::Engine(Error::SourceEnded { .. }) => "shrank",
            Self::Engine(Error::Io { source, .. }) if is_client_error(source) => "reset",
            Self::Engine(_) | Self::Panicked | Self::Short | Self::Stream => "failed",
            Self::Left => "reset",
            Self::Origin(failure) => failure.kind().label(),
            Self::Stalled => "timeout",
        }
    }

    /// Returns the message for the operator; `None` if the client caused the failure.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            Self::Archive(error) => Some(error.to_string()),
            Self::Changed => Some("a file of the archive was changed while it was sent".to_owned()),
            Self::Engine(Error::Io { source, .. }) if is_client_error(source) => None,
            Self::Engine(error) => Some(error.to_string()),
            Self::Origin(failure) => Some(failure.detail()),
            Self::Left | Self::Stalled => None,
            Self::Panicked => Some("a thread of the server has panicked".to_owned()),
            Self::Short => Some("the body ended before its length".to_owned()),
            Self::Stream => Some("the folder could not be read to its end".to_owned()),
        }
    }
}

fn is_client_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut)
}

impl SendOutcome {
    /// Returns whether fewer bytes than promised were sent for no known reason.
    pub(crate) fn is_short(&self, promised: Option<u64>) -> bool {
        self.failure.is_none() && promised.is_some_and(|promised| self.report.bytes() < promised)
    }

    /// Returns whether nothing was sent because the file had changed, so that another response is
    /// still possible.
    pub(crate) fn is_unsent_change(&self) -> bool {
        let is_change =
            matches!(&self.failure, Some(SendFailure::Engine(Error::SourceChanged { .. })));
        is_change && self.report.bytes() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_with_fewer_bytes_than_promised_is_short() {
        let mut outcome = SendOutcome::default();
        for (promised, is_short) in [(Some(1), true), (Some(0), false), (None, false)] {
            assert_eq!(outcome.is_short(promised), is_short, "{promised:?}");
        }
        // A failure that is known already explains it.
        outcome.failure = Some(SendFailure::Left);
        assert!(!outcome.is_short(Some(1)));
    }

    #[test]
    fn only_failures_of_the_server_have_a_reason() {
        for (failure, label, has_reason) in [
            (SendFailure::Left, "reset", false),
            (SendFailure::Stalled, "timeout", false),
            (SendFailure::Panicked, "failed", true),
        ] {
            assert_eq!((failure.label(), failure.reason().is_some()), (label, has_reason));
        }
    }
}

/// The action after a response.
#[derive(Clone, Copy)]
pub(super) enum After {
    /// Read the next request.
    ReadOn,
    /// Close once the client has the response. The number is the maximum of bytes to discard until
    /// then.
    Linger(u64),
    /// Close at once.
    Close,
}

/// A future of the action after a response, which for most is known at once.
pub(super) enum Responding<'a> {
    Done(After),
    Slow(Pin<Box<dyn Future<Output = After> + 'a>>),
}

impl Future for Responding<'_> {
    type Output = After;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<After> {
        match &mut *self {
            Self::Done(then) => Poll::Ready(*then),
            Self::Slow(responding) => responding.as_mut().poll(context),
        }
    }
}
