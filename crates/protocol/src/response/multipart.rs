//! The body that carries several ranges of one file: multipart/byteranges (RFC 9110 14.6).
//!
//! It is a chain of small headers and ranges of the file, so that every byte of the file is still
//! sent without passing through user space, and the body's length is known before the first byte.

use std::ops::Range;

use super::head::{push_decimal, push_field};
use crate::archive::Fingerprint;

/// The layout of a multipart/byteranges body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
    /// Each part: the bytes before it, beginning with its boundary, and its range of the file.
    pub parts: Vec<(Vec<u8>, Range<u64>)>,
    /// The bytes after the last part.
    pub closing: Vec<u8>,
    /// The separator of the parts.
    pub boundary: String,
}

impl Multipart {
    /// Lays out these ranges of a file of `len` bytes.
    #[must_use]
    pub fn new(ranges: &[Range<u64>], len: u64, media_type: &str, etag: &str) -> Self {
        let boundary = boundary(ranges, etag);
        let parts = ranges.iter().enumerate().map(|(index, range)| {
            let header = part_header(index == 0, &boundary, range, len, media_type);
            (header, range.clone())
        });
        let parts = parts.collect();
        let closing = format!("\r\n--{boundary}--\r\n").into_bytes();
        Self { parts, closing, boundary }
    }

    /// Returns the length of the whole body in bytes, for `Content-Length`.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // it is never empty
    pub fn len(&self) -> u64 {
        let parts = self.parts.iter().map(|(header, range)| {
            (header.len() as u64).saturating_add(range.end.saturating_sub(range.start))
        });
        parts.fold(self.closing.len() as u64, u64::saturating_add)
    }

    /// Returns the value of `Content-Type` for the whole body.
    #[must_use]
    pub fn media_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.boundary)
    }
}

/// Appends `Content-Range: bytes 0-9/100` (RFC 9110 14.4).
pub(crate) fn push_content_range(out: &mut Vec<u8>, range: &Range<u64>, len: u64) {
    out.extend_from_slice(b"Content-Range: bytes ");
    push_decimal(out, range.start);
    out.push(b'-');
    push_decimal(out, range.end.saturating_sub(1));
    out.push(b'/');
    push_decimal(out, len);
    out.extend_from_slice(b"\r\n");
}

/// Returns the bytes before one part.
fn part_header(
    is_first: bool,
    boundary: &str,
    range: &Range<u64>,
    len: u64,
    media_type: &str,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    // RFC 2046 5.1.1: the line break before a boundary belongs to it.
    out.extend_from_slice(if is_first { b"--" } else { b"\r\n--" });
    out.extend_from_slice(boundary.as_bytes());
    out.extend_from_slice(b"\r\n");
    push_field(&mut out, "Content-Type", media_type.as_bytes());
    push_content_range(&mut out, range, len);
    out.extend_from_slice(b"\r\n");
    out
}

/// Returns a boundary that is the same whenever the same ranges of the same version are
/// requested.
///
/// It cannot be planted in a file by an attacker who knows how it is made: computing it needs the
/// entity tag, and writing it into the file changes the tag. By chance, 128 bits are enough.
fn boundary(ranges: &[Range<u64>], etag: &str) -> String {
    let mut fingerprint = Fingerprint::new();
    fingerprint.bytes(etag.as_bytes());
    ranges
        .iter()
        .flat_map(|range| [range.start, range.end])
        .for_each(|end| fingerprint.number(end));
    format!("{:032x}", fingerprint.value())
}
