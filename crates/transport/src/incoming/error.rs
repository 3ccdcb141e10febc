//! The reason why receiving failed.

use std::io;

use rustix::io::Errno;
use underpass_engine::Error;

use underpass_protocol::chunked::BadChunk;

/// The reason why receiving failed.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The transfer was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The body is not validly chunked.
    #[error(transparent)]
    Chunk(BadChunk),
    /// The TLS connection ended without the peer's announcement. An intermediary may have cut it
    /// (RFC 8446 6.1).
    #[error("the connection was cut: no close_notify")]
    Cut,
    /// The connection ended too early.
    #[error("the connection ended too early")]
    Ended,
    /// The engine could not move the bytes.
    #[error(transparent)]
    Engine(Box<Error>),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Nothing, or too little, arrived for the duration of the timeout.
    #[error("too little arrived for too long")]
    Stalled,
    /// Not all arrived before the deadline.
    #[error("not everything arrived in time")]
    Late,
    /// More bytes arrived than are accepted.
    #[error("more arrived than expected")]
    TooLong,
}

impl ReceiveError {
    /// Returns the system error, if it was one.
    pub(super) fn errno(&self) -> Option<Errno> {
        match self {
            Self::Io(error) => Errno::from_io_error(error),
            Self::Engine(error) => match &**error {
                Error::Io { source, .. } => Errno::from_io_error(source),
                _ => None,
            },
            _ => None,
        }
    }
}

impl From<Error> for ReceiveError {
    fn from(error: Error) -> Self {
        match error {
            Error::Cancelled { .. } => Self::Cancelled,
            Error::Stalled { .. } => Self::Stalled,
            Error::SourceEnded { .. } => Self::Ended,
            error => Self::Engine(Box::new(error)),
        }
    }
}
