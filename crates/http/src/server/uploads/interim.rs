//! What is said to a client before its body is there (RFC 9110 15.2).

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::upload::{INTEROP_VERSION, Limits};

/// The body may be sent (RFC 9110 15.2.1).
pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The upload can be gone on with at this address (draft-ietf-httpbis-resumable-upload 5).
pub(super) fn resumption_supported(location: &str, limits: Limits) -> Vec<u8> {
    let head = "HTTP/1.1 104 Upload Resumption Supported\r\n";
    let version = format!("Upload-Draft-Interop-Version: {INTEROP_VERSION}\r\n");
    format!("{head}{version}Location: {location}\r\nUpload-Limit: {limits}\r\n\r\n").into_bytes()
}

/// Writes a few bytes to a socket that does not block.
///
/// # Errors
///
/// As send(2), and `TimedOut` if the client takes nothing for so long.
pub(super) fn write(socket: impl AsFd, mut bytes: &[u8], timeout: Duration) -> io::Result<()> {
    let began = Instant::now();
    while !bytes.is_empty() {
        match send(&socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let left = timeout.saturating_sub(began.elapsed());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                let patience = Timespec::try_from(left).ok();
                // Whatever it says, the next attempt tells more.
                let _ = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], patience.as_ref());
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
