//! The states of a connection.

/// The activity of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It waits for the client's part of the TLS handshake.
    Handshaking,
    /// A step of the TLS handshake waits for its turn, or runs.
    HandshakeStep,
    /// It waits for the next request.
    Idle,
    /// It reads a request that is not complete.
    Reading,
    /// It discards the body of a request.
    Discarding,
    /// It waits for a helper that prepares the response.
    Waiting,
    /// It has a thread that receives the body of a request and checks the time itself.
    Receiving,
    /// It sends a response.
    Sending,
}

/// The reason why this server closes a connection early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// It made no progress.
    Expired,
    /// It was closed to make room for another connection.
    Evicted,
}
