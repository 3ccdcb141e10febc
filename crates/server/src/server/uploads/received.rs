//! How the body of a request was received, as the connection and the log want to know it.

use underpass_engine::Report;

/// How the body of a request was received.
#[derive(Debug)]
pub(in crate::server) struct Received {
    /// How far the body was read.
    pub(in crate::server) body: BodyState,
    /// How its bytes were moved.
    pub(in crate::server) report: Report,
    /// Bytes that were written to the connection before the response.
    pub(in crate::server) interim: u64,
    /// Why the body is not whole, if it is not.
    pub(in crate::server) broken: Option<Broken>,
}

/// How far the body of a request was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum BodyState {
    /// Not at all.
    Untouched,
    /// To its end: the next request may follow.
    Read,
    /// Somewhere between.
    Broken,
}

/// What the log and the operator are told of a body that is not whole.
#[derive(Debug)]
pub(in crate::server) struct Broken {
    /// One word for the access log.
    pub(in crate::server) word: &'static str,
    /// What the operator should know; `None` if it is the client's own doing.
    pub(in crate::server) reason: Option<String>,
    /// Whether the client may come again with the rest.
    pub(in crate::server) is_cut_off: bool,
}

impl Received {
    /// Nothing was received: a body that is in this state, and an empty report.
    pub(in crate::server) fn nothing(body: BodyState) -> Self {
        Self { body, report: Report::default(), interim: 0, broken: None }
    }
}
