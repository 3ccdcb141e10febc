//! Why receiving failed.

use std::fmt;
use std::io;

use rustix::io::Errno;
use underpass_engine::Error;

use underpass_protocol::chunked::BadChunk;

/// Why receiving failed.
#[derive(Debug)]
pub enum ReceiveError {
    /// The transfer was cancelled.
    Cancelled,
    /// The body is not validly chunked.
    Chunk(BadChunk),
    /// The TLS connection ended without an announcement by the peer. A machine in between may
    /// have cut it (RFC 8446 6.1).
    Cut,
    /// The connection ended too early.
    Ended,
    /// The engine could not move the bytes.
    Engine(Box<Error>),
    /// The connection failed.
    Io(io::Error),
    /// Nothing arrived for the length of the timeout.
    Stalled,
    /// More bytes arrived than are accepted.
    TooLong,
}

impl ReceiveError {
    /// Returns the error of the system, if it was one.
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

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled"),
            Self::Chunk(fault) => fault.fmt(f),
            Self::Cut => f.write_str("the connection was cut: no close_notify"),
            Self::Ended => f.write_str("the connection ended too early"),
            Self::Engine(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Stalled => f.write_str("nothing came for too long"),
            Self::TooLong => f.write_str("more came than is wanted"),
        }
    }
}

impl std::error::Error for ReceiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Chunk(fault) => Some(fault),
            Self::Engine(error) => Some(error),
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
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
