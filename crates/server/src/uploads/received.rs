//! The result of receiving a request's body, for the connection and the log.

use underpass_engine::Report;

/// The result of receiving a request's body.
#[derive(Debug)]
pub(crate) struct ReceivedUpload {
    /// The part of the body that was read.
    pub(crate) body: BodyState,
    /// The report of the moved bytes.
    pub(crate) report: Report,
    /// The bytes that were written to the connection before the response.
    pub(crate) interim: u64,
    /// The reason why the body is incomplete, if it is.
    pub(crate) broken: Option<IncompleteBody>,
}

/// The part of a request's body that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyState {
    /// The server has read nothing of it.
    Untouched,
    /// The server has read all of it: the next request may follow.
    Read,
    /// The server has read a part of it, or cannot read anything after it.
    Incomplete,
}

/// An incomplete body, for the log and the operator.
#[derive(Debug)]
pub(crate) struct IncompleteBody {
    /// The cause.
    pub(crate) cause: IncompleteCause,
    /// The message for the operator; `None` if the client caused it.
    pub(crate) reason: Option<String>,
}

/// The cause of an incomplete body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncompleteCause {
    /// It could not be read or stored.
    Failed,
    /// The disk is about to be full.
    Full,
    /// It has no valid chunks.
    Malformed,
    /// The connection was lost.
    Reset,
    /// Another connection has resumed the same part.
    Superseded,
    /// Nothing arrived for too long.
    Timeout,
    /// It is longer than allowed.
    TooLong,
    /// It arrives too slowly.
    TooSlow,
}

impl IncompleteCause {
    /// Returns the label for the access log and the metrics.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Full => "full",
            Self::Malformed => "malformed",
            Self::Reset => "reset",
            Self::Superseded => "superseded",
            Self::Timeout => "timeout",
            Self::TooLong => "too_long",
            Self::TooSlow => "too_slow",
        }
    }

    /// Returns whether the body was cut off, and its client may resume it.
    pub(crate) const fn is_cut_off(self) -> bool {
        matches!(self, Self::Reset | Self::Superseded | Self::Timeout | Self::TooSlow)
    }
}

impl ReceivedUpload {
    /// Creates a value for a body in this state of which nothing was received.
    pub(crate) fn nothing(body: BodyState) -> Self {
        Self { body, report: Report::default(), interim: 0, broken: None }
    }
}
