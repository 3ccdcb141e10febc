//! What is said to a client before its body is there (RFC 9110 15.2).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use underpass_engine::TlsTransport;

use crate::incoming::ReceiveError;
use crate::tls::Session;
use crate::upload::{INTEROP_VERSION, Limits};

/// The body may be sent (RFC 9110 15.2.1).
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The upload can be gone on with at this address (draft-ietf-httpbis-resumable-upload 5).
pub(crate) fn resumption_supported(location: &str, limits: Limits) -> Vec<u8> {
    let head = "HTTP/1.1 104 Upload Resumption Supported\r\n";
    let version = format!("Upload-Draft-Interop-Version: {INTEROP_VERSION}\r\n");
    format!("{head}{version}Location: {location}\r\nUpload-Limit: {limits}\r\n\r\n").into_bytes()
}

/// Writes a few bytes to a socket that does not block, through the TLS over it.
///
/// # Errors
///
/// As send(2), and `TimedOut` if the client takes nothing for so long.
pub(crate) fn write(
    socket: BorrowedFd<'_>,
    session: Option<&Session>,
    mut bytes: &[u8],
    timeout: Duration,
) -> io::Result<()> {
    let began = Instant::now();
    loop {
        let outcome = match session {
            Some(session) if bytes.is_empty() => match session.flush(socket) {
                Ok(()) => return Ok(()),
                Err(errno) => Err(errno),
            },
            None if bytes.is_empty() => return Ok(()),
            Some(session) => session.send(socket, bytes, false),
            None => send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT),
        };
        match outcome {
            Ok(sent) => bytes = &bytes[sent..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if !wait(socket, PollFlags::OUT, timeout.saturating_sub(began.elapsed())) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Waits until the first byte that comes through TLS is here, and takes nothing.
pub(crate) fn first_byte(
    socket: BorrowedFd<'_>,
    session: &Session,
    timeout: Duration,
) -> Result<(), ReceiveError> {
    let began = Instant::now();
    loop {
        match session.peek(socket) {
            Some(true) => return Ok(()),
            Some(false) => return Err(ReceiveError::Ended),
            None => {}
        }
        if !wait(socket, PollFlags::IN, timeout.saturating_sub(began.elapsed())) {
            return Err(ReceiveError::Stalled);
        }
    }
}

/// Waits for a socket; whether there was any time left to do so.
fn wait(socket: BorrowedFd<'_>, flags: PollFlags, left: Duration) -> bool {
    if left.is_zero() {
        return false;
    }
    let patience = Timespec::try_from(left).ok();
    // Whatever it says, the next attempt tells more.
    let _ = poll(&mut [PollFd::new(&socket, flags)], patience.as_ref());
    true
}
