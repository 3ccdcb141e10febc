//! Resets an aborted stream over a Unix socket.
//!
//! A Unix socket has no reset, and the end of a stream is its only sign of completeness. But a
//! reader gets `ECONNRESET` after the last byte if the peer closed its socket while it had unread
//! bytes (`unix_release_sock` in net/unix/af_unix.c). So the receiver sends a byte, and the sender
//! reads it only once everything has arrived: not if it fails, is interrupted or killed. In the
//! other direction, the receiver sends a second byte once it has stored everything, and the sender
//! waits for that. Other programs do not expect this, so each side does it only if the peer's socket
//! is marked.

use std::time::{Duration, Instant};

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
        send(stream, &[ACKNOWLEDGES], SendFlags::NOSIGNAL).or(Err(Errno::CONNRESET))?;
    }
    Ok(())
}

/// Tells the sender that everything it has sent is stored.
pub(super) fn acknowledge(stream: &Stream) {
    if is_confirmed(stream) {
        // A sender that waits no longer has ended.
        let _ = send(stream, &[ACKNOWLEDGES], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// Returns whether the stream ends with an error unless the sender confirms that it has sent
/// everything.
pub(super) fn is_confirmed(stream: &Stream) -> bool {
    matches!(stream, Stream::Unix(socket) if has_marked_peer(socket))
}

/// Confirms that all bytes were sent and that the receiver has read the last one, and waits at most
/// for `time` until it has stored them. For an empty stream, it waits until the receiver has accepted
/// the connection.
///
/// # Errors
///
/// `ECONNRESET` if the receiver has failed, and as [`Limits::check`].
pub(super) fn confirm(stream: &Stream, limits: Limits<'_>, time: Duration) -> Result<(), Errno> {
    if !is_confirmed(stream) {
        return Ok(());
    }
    limits.until_ready(stream, PollFlags::IN)?;
    let limits = limits.no_later_than(Some(Instant::now() + time));
    if receive(stream)? != ACKNOWLEDGES {
        // One of an earlier version says nothing more.
        return Ok(());
    }
    // A receiver that takes longer has every byte all the same.
    match limits.until_ready(stream, PollFlags::IN) {
        Ok(()) => receive(stream).map(drop),
        Err(_) => Ok(()),
    }
}

/// Receives one byte that has arrived.
fn receive(stream: &Stream) -> Result<u8, Errno> {
    let mut byte = [0];
    match recv(stream, &mut byte, RecvFlags::DONTWAIT)?.1 {
        0 => Err(Errno::CONNRESET),
        _ => Ok(byte[0]),
    }
}

/// The bytes that a receiver sends: the first announces the second, by which it acknowledges that
/// everything is stored. Earlier versions send a zero byte only.
const ACKNOWLEDGES: u8 = 1;
