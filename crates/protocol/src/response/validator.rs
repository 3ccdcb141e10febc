//! The validators of a file's version: the entity tag and the date.
//!
//! The tag must be strong, or a download cannot be resumed by it (RFC 9110 13.1.5). No byte of the
//! file is read for it: the kernel moves the time of change whenever the contents or the other
//! facts change, and no call can set it back.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::version::FileVersion;
use httpdate::HttpDate;

/// Returns the strong entity tag of a file: inode, size, time of modification and of change.
///
/// Times are in nanoseconds as far as the file system keeps them. Two writes within one tick of
/// the kernel's clock (4 ms at most, and one nanosecond since Linux 6.13) that leave the size
/// alone can share a tag; nothing short of reading the file could tell them apart.
#[must_use]
pub fn etag(version: &FileVersion) -> String {
    let FileVersion { inode, size, modified, changed, .. } = *version;
    let parts = [
        inode,
        size,
        modified.seconds.cast_unsigned(),
        modified.nanoseconds.into(),
        changed.seconds.cast_unsigned(),
        changed.nanoseconds.into(),
    ];
    let mut tag = String::with_capacity(64);
    tag.push('"');
    for (index, part) in parts.into_iter().enumerate() {
        if index > 0 {
            tag.push('-');
        }
        push_hex(&mut tag, part);
    }
    tag.push('"');
    tag
}

/// Returns whether this is a strong entity tag (RFC 9110 8.8.3).
#[must_use]
pub fn is_strong(tag: &[u8]) -> bool {
    let [b'"', inside @ .., b'"'] = tag else { return false };
    inside.iter().all(|&byte| is_etag_char(byte))
}

/// Returns whether a byte may be between the quotes of an entity tag (RFC 9110 8.8.3).
pub(crate) fn is_etag_char(byte: u8) -> bool {
    byte == 0x21 || (0x23..=0x7e).contains(&byte) || byte >= 0x80
}

/// Returns the time for `Last-Modified`: in whole seconds, and never after the response itself (RFC
/// 9110 8.8.2.1). `None` if an HTTP date cannot express it.
#[must_use]
pub fn last_modified(modified: SystemTime, now: SystemTime) -> Option<SystemTime> {
    whole_seconds(modified.min(now))
}

/// Returns the moment without its fraction of a second; `None` before 1970 and after 9999, where
/// dates of HTTP end.
#[must_use]
pub fn whole_seconds(time: SystemTime) -> Option<SystemTime> {
    let since = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    (since < YEAR_10_000).then(|| UNIX_EPOCH + Duration::from_secs(since))
}

/// Appends a date as HTTP writes it (RFC 9110 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`; nothing if
/// there is none, see [`whole_seconds`].
pub fn push_date(out: &mut Vec<u8>, time: SystemTime) {
    if let Some(time) = whole_seconds(time) {
        // Writing to memory cannot fail.
        let _ = write!(out, "{}", HttpDate::from(time));
    }
}

/// Returns the date in a field, in any of the three formats; `None` if it is invalid, and so must
/// be ignored.
#[must_use]
pub fn parse_date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(str::from_utf8(value).ok()?).ok()
}

/// Appends a number in hexadecimal, without leading zeros.
fn push_hex(out: &mut String, number: u64) {
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for index in (0..digits).rev() {
        let digit = u32::try_from(number >> (4 * index) & 15).unwrap_or(0);
        out.push(char::from_digit(digit, 16).unwrap_or('0'));
    }
}

/// Seconds from 1970 to the year 10000, which needs a fifth digit.
const YEAR_10_000: u64 = 253_402_300_800;
