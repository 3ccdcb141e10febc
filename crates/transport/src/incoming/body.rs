//! The options and the result of receiving a body.

use underpass_engine::{PipePool, Policy, Report};

use super::ReceiveError;

/// How the end of a body is determined (RFC 9112 6.3).
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
    /// The pool of pipes, shared by the chunks of a body and by bodies.
    pub pipes: Option<&'a PipePool>,
    /// The largest number of bytes between two calls that update the journal.
    pub progress_every: Option<u64>,
    /// The most bytes accepted of a body whose length is not known in advance. For one that ends
    /// with the connection, one byte more may be written.
    pub limit: Option<u64>,
    /// Whether space is reserved first, if the length is known.
    pub reserve: bool,
}

/// The result of receiving a body, complete or not.
#[derive(Debug)]
pub struct ReceivedBody {
    /// Counts the bytes in the file, whatever the outcome.
    pub report: Report,
    /// The reason why the body is incomplete, if it is.
    pub outcome: Result<(), ReceiveError>,
}
