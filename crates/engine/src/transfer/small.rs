//! Sends a small file behind its head from one buffer of the caller: what a [`Transfer`] does with
//! such a pair, without the state by which that can be continued.
//!
//! [`Transfer`]: crate::Transfer

use std::os::fd::AsFd;

use rustix::buffer::spare_capacity;
use rustix::io::pread;
use rustix::net::{SendFlags, send};

use crate::integrity::{Integrity, Version};
use crate::report::Report;

/// Reads `len` bytes of a file from `offset` behind the head in `message`, checks that the file is
/// in its version and in its place, and sends both by one call. Returns how many bytes the socket
/// took, which may be fewer than all; `None` if nothing was sent, for whatever reason, and a
/// [`Transfer`](crate::Transfer) has to find out which.
///
/// With `version` the level is [`Integrity::Detect`], without it [`Integrity::Fast`]. `message` must
/// be empty but for the head, and has all bytes afterwards.
pub fn send_small(
    message: &mut Vec<u8>,
    (file, offset, len): (impl AsFd, u64, usize),
    version: Option<Version>,
    socket: impl AsFd,
    report: &mut Report,
) -> Option<usize> {
    let head = message.len();
    message.reserve(len);
    let read = pread(&file, spare_capacity(message), offset).ok()?;
    // The buffer may have room for more than is wanted.
    message.truncate(head + len);
    let is_current =
        || version.is_none_or(|version| Version::of(&file).is_ok_and(|now| now == version));
    if read < len || !is_current() {
        return None;
    }
    let sent = send(socket, message, SendFlags::NOSIGNAL).ok()?;
    let integrity = if version.is_some() { Integrity::Detect } else { Integrity::Fast };
    report.count_small(head, len, sent, integrity);
    Some(sent)
}
