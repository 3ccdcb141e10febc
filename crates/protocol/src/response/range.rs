//! Evaluates the `Range` field of a request (RFC 9110 14).
//!
//! The resulting ranges are always inside the file, do not overlap, and are few: the sender needs
//! no further check, and no request can multiply the work of a response.

use std::ops::Range;

use crate::request::Request;

/// The part of a file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeAnswer {
    /// The whole file, as if there were no `Range`: 200.
    Whole,
    /// A single part, which is not empty: 206.
    Part(Range<u64>),
    /// Several parts, none empty, in the requested order: 206.
    Parts(Vec<Range<u64>>),
    /// No requested byte is in the file: 416.
    Unsatisfiable,
}

/// Returns the part that the `Range` of this request selects from a file of `len` bytes.
///
/// The caller knows that the method is GET (14.2: others have no ranges) and that an `If-Range`
/// holds. Several `Range` fields are ignored: it is not a list, and nothing tells which is meant.
#[must_use]
pub fn of_request(request: &Request, len: u64) -> RangeAnswer {
    request.single("range").map_or(RangeAnswer::Whole, |value| answer(value, len))
}

/// Returns the first byte that this request selects, and the last one if its `Range` names it: 0
/// without a `Range`; `None` if it selects anything but one part from some byte on.
pub(crate) fn one_part(request: &Request) -> Option<(u64, Option<u64>)> {
    if request.field("range").is_none() {
        return Some((0, None));
    }
    let list = request.single("range").and_then(of_bytes)?;
    match Spec::parse(list.trim_ascii()) {
        Some(Spec::From(first, last)) => Some((first, last)),
        _ => None,
    }
}

/// Returns the first requested range of a file whose length is not known yet: up
/// to `u64::MAX` if it has no end, and empty if it depends on the length (`bytes=-N`) or is
/// unsatisfiable. `None` without a well-formed range (RFC 9110 14.1.2).
#[must_use]
pub fn first_of_request(request: &Request) -> Option<Range<u64>> {
    let list = request.single("range").and_then(of_bytes)?;
    let mut specs = list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    Some(match Spec::parse(specs.find(|spec| !spec.is_empty())?)? {
        Spec::Last(_) => 0..0,
        spec @ Spec::From(..) => spec.within(u64::MAX).unwrap_or(0..0),
    })
}

/// Returns what this value of `Range` selects from a file of `len` bytes.
///
/// Where peers differ, this decides:
/// - A value that is not well formed is ignored (14.2), and so is another unit (14.1).
/// - `10-1` selects nothing and counts as not in the file, so that alone it is a 416, although
///   14.1.1 calls it invalid and 14.2 lets invalid ones be ignored: nginx, Caddy, h2o,
///   static-web-server and dufs all answer 416, so clients know that, and an error helps
///   a client with its ends swapped more than a whole image.
/// - An empty file has no ranges and is sent whole, as Go does: a client that puts
///   `bytes=0-` on everything must not fail on it.
/// - Ranges that overlap, or more than [`MAX_PARTS`] of them, are answered with the whole file
///   (14.2 and 17.15): that is never more bytes than were requested, and always correct. Ranges
///   that do not overlap are never longer than the file in sum.
#[must_use]
pub fn answer(value: &[u8], len: u64) -> RangeAnswer {
    let Some(list) = of_bytes(value) else { return RangeAnswer::Whole };
    let mut first = None;
    let mut parts = Vec::new();
    let mut is_empty = true;
    // 5.6.1.2: empty members of a list are skipped.
    for spec in list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|s| !s.is_empty()) {
        is_empty = false;
        let Some(spec) = Spec::parse(spec) else { return RangeAnswer::Whole };
        let Some(part) = spec.within(len) else { continue };
        match &first {
            None => first = Some(part),
            Some(_) if parts.len() + 1 == MAX_PARTS => return RangeAnswer::Whole,
            Some(first) => {
                if parts.iter().chain([first]).any(|other| overlap(other, &part)) {
                    return RangeAnswer::Whole;
                }
                parts.push(part);
            }
        }
    }
    match first {
        _ if is_empty || len == 0 => RangeAnswer::Whole,
        None => RangeAnswer::Unsatisfiable,
        Some(first) if parts.is_empty() => RangeAnswer::Part(first),
        Some(first) => {
            parts.insert(0, first);
            RangeAnswer::Parts(parts)
        }
    }
}

/// A member of the list.
#[derive(Clone, Copy, Debug)]
enum Spec {
    /// `FIRST-LAST` or `FIRST-`.
    From(u64, Option<u64>),
    /// `-COUNT`: this number of bytes at the end.
    Last(u64),
}

impl Spec {
    /// Reads `0-9`, `10-` or `-5`; nothing else, not even white space (14.1.1).
    fn parse(spec: &[u8]) -> Option<Self> {
        let dash = spec.iter().position(|&byte| byte == b'-')?;
        let (first, last) = (&spec[..dash], &spec[dash + 1..]);
        Some(match (first, last) {
            ([], last) => Self::Last(saturating(last)?),
            (first, []) => Self::From(saturating(first)?, None),
            (first, last) => Self::From(saturating(first)?, Some(saturating(last)?)),
        })
    }

    /// Returns the bytes of a file of `len` bytes that this names (14.1.2); `None` if it has none
    /// of them.
    fn within(self, len: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::From(first, None) => first..len,
            Self::From(first, Some(last)) => first..len.min(last.saturating_add(1)),
            Self::Last(count) => len.saturating_sub(count)..len,
        };
        (range.start < range.end).then_some(range)
    }
}

/// Returns the part after `bytes=`; units ignore case (14.1).
fn of_bytes(value: &[u8]) -> Option<&[u8]> {
    let (unit, list) = value.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(list)
}

/// Returns the number that these digits stand for, or `u64::MAX` if it is greater: no file is that
/// long.
fn saturating(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// Returns whether two ranges share a byte.
fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The maximum number of parts of a response. Readers of PDF and zip files ask for a handful.
pub const MAX_PARTS: usize = 16;
