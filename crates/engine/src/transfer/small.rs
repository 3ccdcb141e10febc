//! Sends a small or medium file after its head as a [`Transfer`] would, but without the state
//! needed to continue such a transfer.
//!
//! [`Transfer`]: crate::Transfer

use std::os::fd::AsFd;

use rustix::buffer::spare_capacity;
use rustix::fs::sendfile;
use rustix::io::pread;
use rustix::net::{SendFlags, send};

use crate::chain::BULK;
use crate::error::Error;
use crate::integrity::{Integrity, Version};
use crate::report::Report;
use crate::socket::{arm_reset, cork, uncork};

/// A part of a file that is sent after a head.
#[derive(Clone, Copy, Debug)]
pub struct FilePart<F> {
    /// The file.
    pub file: F,
    /// The offset of its first byte.
    pub offset: u64,
    /// The number of its bytes.
    pub len: usize,
    /// The version that the file must have: with it the level is [`Integrity::Detect`], without it
    /// [`Integrity::Fast`].
    pub version: Option<Version>,
}

/// Reads a part of a file after the head in `message`, checks that the file still has its version
/// and its name, and sends both by one call. Returns how many bytes the socket accepted, which may
/// be fewer than all; `None` if nothing was sent, for any reason, which a
/// [`Transfer`](crate::Transfer) has to find out.
///
/// `message` must hold only the head, and holds all bytes afterwards.
pub fn send_small(
    message: &mut Vec<u8>,
    part: &FilePart<impl AsFd>,
    socket: impl AsFd,
    report: &mut Report,
) -> Option<usize> {
    let FilePart { ref file, offset, len, version } = *part;
    let head = message.len();
    message.reserve(len);
    let read = pread(file, spare_capacity(message), offset).ok()?;
    // The buffer may have room for more than is needed.
    message.truncate(head + len);
    let is_current =
        || version.is_none_or(|version| Version::of(file).is_ok_and(|now| now == version));
    if read < len || !is_current() {
        return None;
    }
    let sent = send(socket, message, SendFlags::NOSIGNAL).ok()?;
    report.count_small(head, len, sent, level(version));
    Some(sent)
}

/// Sends a head, and then a part of a file by sendfile(2). Returns how many bytes of both the
/// socket accepted; if these are fewer than all, a [`Transfer`](crate::Transfer) has to send the
/// rest. `None` if nothing was sent.
///
/// The version is compared here once all is sent, otherwise by the transfer that sends the rest.
///
/// # Errors
///
/// [`Error::SourceChanged`]. Closing the socket then resets the connection.
pub fn send_with_head(
    head: &[u8],
    part: &FilePart<impl AsFd>,
    socket: impl AsFd,
    report: &mut Report,
) -> Result<Option<usize>, Error> {
    let FilePart { ref file, offset, len, version } = *part;
    let is_corked = len as u64 >= BULK && cork(&socket);
    let of_head = send(&socket, head, SendFlags::NOSIGNAL | SendFlags::MORE);
    let of_file = if of_head == Ok(head.len()) {
        // Whatever makes it fail also fails the transfer, which reports the reason.
        sendfile(&socket, file, Some(&mut { offset }), len).unwrap_or(0)
    } else {
        0
    };
    let differs =
        |version| !Version::of(file).is_ok_and(|now: Version| !now.differs_from(&version));
    let has_changed = of_file == len && version.is_some_and(differs);
    // The end of a file that has changed is left behind.
    if is_corked && !has_changed {
        // A socket that cannot be uncorked is closed already.
        let _ = uncork(&socket);
    }
    let Ok(of_head) = of_head else { return Ok(None) };
    report.count_sent(of_head, of_file, level(version));
    if has_changed {
        // A socket that cannot be reset is closed already.
        let _ = arm_reset(&socket);
        let report = Box::new(report.clone());
        return Err(Error::SourceChanged { level: Integrity::Detect, report });
    }
    Ok(Some(of_head + of_file))
}

/// Returns the integrity level that checking this version, if any, provides.
const fn level(version: Option<Version>) -> Integrity {
    if version.is_some() { Integrity::Detect } else { Integrity::Fast }
}
