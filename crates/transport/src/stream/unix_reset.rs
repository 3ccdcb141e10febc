//! Resets a stream over a Unix socket that breaks off.
//!
//! A Unix socket has no reset, and the end of a stream is its only sign of completeness. But a
//! reader of one gets `ECONNRESET` after the last byte if the other side closed it while it had
//! unread bytes (`unix_release_sock` in net/unix/af_unix.c). So the receiver sends a byte, and the
//! sender reads it only when all has arrived: not if it fails, is interrupted or killed. Other
//! programs know nothing of this, so both sides do it only if the socket of the other one is
//! marked.

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use underpass_engine::wait::Limits;

use super::Stream;
use super::unix_marks::has_marked_peer;

/// Has the stream end with an error unless the sender confirms that it has sent everything.
///
/// # Errors
///
/// `ECONNRESET` if the sender has left already.
pub fn expect_confirmation(stream: &Stream) -> Result<(), Errno> {
    if is_confirmed(stream) {
        send(stream, &[0], SendFlags::NOSIGNAL).or(Err(Errno::CONNRESET))?;
    }
    Ok(())
}

/// Returns whether the sender confirms that it has sent everything, or the stream ends with an error.
pub(super) fn is_confirmed(stream: &Stream) -> bool {
    matches!(stream, Stream::Unix(socket) if has_marked_peer(socket))
}

/// Confirms that all bytes were sent, of which the receiver has read the last one. Without any, it
/// waits until the receiver has taken the connection.
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
