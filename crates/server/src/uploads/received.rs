//! How the body of a request was received, as the connection and the log want to know it.

use underpass_engine::Report;

/// How the body of a request was received.
#[derive(Debug)]
pub(crate) struct Received {
    /// How far the body was read.
    pub(crate) body: BodyState,
    /// How its bytes were moved.
    pub(crate) report: Report,
    /// Bytes that were written to the connection before the response.
    pub(crate) interim: u64,
    /// Why the body is not whole, if it is not.
    pub(crate) broken: Option<Broken>,
}

/// How far the body of a request was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyState {
    /// Not at all.
    Untouched,
    /// To its end: the next request may follow.
    Read,
    /// Somewhere between.
    Broken,
}

/// What the log and the operator are told of a body that is not whole.
#[derive(Debug)]
pub(crate) struct Broken {
    /// One word for the access log.
    pub(crate) word: &'static str,
    /// What the operator should know; `None` if it is the client's own doing.
    pub(crate) reason: Option<String>,
    /// Whether the client may come again with the rest.
    pub(crate) is_cut_off: bool,
}

impl Received {
    /// Nothing was received: a body that is in this state, and an empty report.
    pub(crate) fn nothing(body: BodyState) -> Self {
        Self { body, report: Report::default(), interim: 0, broken: None }
    }
}
