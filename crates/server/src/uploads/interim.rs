//! Interim responses, which are sent before the body has arrived (RFC 9110 15.2).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use underpass_engine::TlsTransport;

use underpass_protocol::upload::{INTEROP_VERSION, UploadLimits};
use underpass_transport::incoming::ReceiveError;
use underpass_transport::tls::Session;

/// The response that invites the body (RFC 9110 15.2.1).
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Returns the response with the address for resuming the upload
/// (draft-ietf-httpbis-resumable-upload 5).
pub(crate) fn resumption_supported(location: &str, limits: UploadLimits) -> Vec<u8> {
    let head = "HTTP/1.1 104 Upload Resumption Supported\r\n";
    let version = format!("Upload-Draft-Interop-Version: {INTEROP_VERSION}\r\n");
    format!("{head}{version}Location: {location}\r\nUpload-Limit: {limits}\r\n\r\n").into_bytes()
}

/// Writes a few bytes to a socket that does not block, through the TLS over it.
///
/// # Errors
///
/// The errors of send(2), and `TimedOut` if the client does not take all bytes in time.
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

/// Waits for the first byte over TLS without reading it.
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

/// Waits for a socket; returns whether there was any time left to wait.
fn wait(socket: BorrowedFd<'_>, flags: PollFlags, left: Duration) -> bool {
    if left.is_zero() {
        return false;
    }
    let timeout = Timespec::try_from(left).ok();
    // The result does not matter, because the next attempt finds out more.
    let _ = poll(&mut [PollFd::new(&socket, flags)], timeout.as_ref());
    true
}
