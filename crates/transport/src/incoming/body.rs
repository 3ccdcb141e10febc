//! How a body is received, and what came of it.

use underpass_engine::{PipePool, Policy, Report};

use super::ReceiveError;

/// The way by which the end of a body is known (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// This number of bytes.
    Length(u64),
    /// In chunks, the last of which is empty.
    Chunked,
    /// By the end of the connection, which only TLS distinguishes from an interruption.
    UntilEnd,
}

/// The options for receiving a body.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiveOptions<'a> {
    /// Which mechanisms may move it.
    pub policy: Policy,
    /// Bytes requested in one system call, instead of the mechanism's own default.
    pub step: Option<usize>,
    /// Where pipes come from; shared by the chunks of a body and by bodies.
    pub pipes: Option<&'a PipePool>,
    /// The largest number of bytes between two calls that update the journal.
    pub progress_every: Option<u64>,
    /// The most bytes accepted of a body whose length is not known beforehand. Of one that ends
    /// with the connection, one more may be written.
    pub limit: Option<u64>,
    /// Whether space is reserved first, where the length is known.
    pub reserve: bool,
}

/// The result of receiving a body, complete or not.
#[derive(Debug)]
pub struct ReceivedBody {
    /// The bytes that are in the file, whatever the outcome.
    pub report: Report,
    /// The reason why the body is not complete, if it is not.
    pub outcome: Result<(), ReceiveError>,
}
