//! Resets a stream over a unix socket that breaks off.
//!
//! A unix socket has no reset of its own, and the end of a stream is its only sign of completeness.
//! But a reader of one gets `ECONNRESET` after the last byte if the other side closed it while it
//! had unread bytes (`unix_release_sock` in net/unix/af_unix.c). So the receiver sends a byte, and
//! the sender reads it only when all has arrived: not if it fails, is interrupted or killed. Other
//! programs know nothing of this, so the receiver does it only if the sender is this very program.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::Stream;

/// Has the stream end with an error unless the sender confirms that it has sent everything.
///
/// # Errors
///
/// `ECONNRESET` if the sender has left already.
pub(crate) fn expect_confirmation(stream: &Stream) -> Result<(), Errno> {
    match stream {
        Stream::Unix(socket) if is_of_this_program(socket) => {
            send(socket, &[0], SendFlags::NOSIGNAL).or(Err(Errno::CONNRESET)).map(drop)
        }
        _ => Ok(()),
    }
}

/// Confirms that all bytes were sent, of which the receiver has read the last one.
pub(crate) fn confirm(stream: &Stream, sent: u64) {
    if let Stream::Unix(socket) = stream {
        // A receiver sends its byte before it reads; if there is nothing to read, it may be late.
        let wait = Timespec { tv_sec: (sent == 0).into(), tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait));
        // Other programs send nothing.
        let _ = recv(socket, &mut [0; 1], RecvFlags::DONTWAIT);
    }
}

/// Returns whether the peer runs the file that this process runs, as far as this one may see it.
fn is_of_this_program(socket: &UnixStream) -> bool {
    let program = |process: &str| {
        let found = fs::metadata(format!("/proc/{process}/exe")).ok()?;
        Some((found.dev(), found.ino()))
    };
    let Ok(peer) = getsockopt(socket, PeerCredentials) else { return false };
    let own = program("self");
    own.is_some() && program(&peer.pid().to_string()) == own
}
