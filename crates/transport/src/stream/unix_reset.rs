//! Resets an aborted stream over a Unix socket.
//!
//! A Unix socket has no reset, and the end of a stream is its only sign of completeness. But a
//! reader gets `ECONNRESET` after the last byte if the peer closed its socket while it had unread
//! bytes (`unix_release_sock` in net/unix/af_unix.c). So the receiver sends a byte, and the sender
//! reads it only once everything has arrived: not if it fails, is interrupted or killed. Other
//! programs do not expect this, so each side does it only if the peer's socket is marked.

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use underpass_engine::wait::Limits;

use super::Stream;
use super::unix_marks::has_marked_peer;

/// Makes the stream end with an error unless the sender confirms that it has sent everything.
///
/// # Errors
///
/// `ECONNRESET` if the sender has already closed the connection.
pub fn expect_confirmation(stream: &Stream) -> Result<(), Errno> {
    if is_confirmed(stream) {
        send(stream, &[0], SendFlags::NOSIGNAL).or(Err(Errno::CONNRESET))?;
    }
    Ok(())
}

/// Returns whether the stream ends with an error unless the sender confirms that it has sent
/// everything.
pub(super) fn is_confirmed(stream: &Stream) -> bool {
    matches!(stream, Stream::Unix(socket) if has_marked_peer(socket))
}

/// Confirms that all bytes were sent and that the receiver has read the last one. For an empty
/// stream, it waits until the receiver has accepted the connection.
///
/// # Errors
///
/// `ECONNRESET` if the receiver has failed, and as [`Limits::check`].
pub(super) fn confirm(stream: &Stream, limits: Limits<'_>) -> Result<(), Errno> {
    if is_confirmed(stream) {
        limits.until_ready(stream, PollFlags::IN)?;
        if recv(stream, &mut [0; 1], RecvFlags::DONTWAIT)?.1 == 0 {
            return Err(Errno::CONNRESET);
        }
    }
    Ok(())
}
