//! The pieces of a journal, one line each, and operations on lists of ranges.

use std::ops::Range;

/// A piece, of which the first `done` bytes have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalPiece {
    pub(super) start: u64,
    pub(super) done: u64,
}

impl JournalPiece {
    pub(super) fn present(&self) -> Range<u64> {
        self.start..self.start + self.done
    }

    /// Formats the line of [`LINE`] bytes.
    pub(super) fn line(self) -> String {
        sealed(format!("{} {}", self.start, self.done))
    }

    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        match *numbers(unsealed(line)?)? {
            [start, done] => start.checked_add(done).map(|_| Self { start, done }),
            _ => None,
        }
    }

    /// Parses `start end done`, the older format without a checksum.
    pub(super) fn parse_unsealed(line: &[u8]) -> Option<Self> {
        match *numbers(line.strip_suffix(b" \n")?)? {
            [start, end, done] if start <= end && done <= end - start => Some(Self { start, done }),
            _ => None,
        }
    }
}

fn numbers(text: &[u8]) -> Option<Vec<u64>> {
    str::from_utf8(text).ok()?.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
}

/// Appends the checksum to a line. No line crosses a page boundary, so each is written whole or not
/// at all.
pub(super) fn sealed(mut text: String) -> String {
    let padded = (text.len() + SEAL).next_multiple_of(LINE) - SEAL;
    text.extend(std::iter::repeat_n(' ', padded - text.len()));
    let seal = seal(text.as_bytes());
    text + &seal
}

/// Returns a line without its checksum; `None` if the checksum is wrong.
pub(super) fn unsealed(line: &[u8]) -> Option<&[u8]> {
    let (text, found) = line.split_at_checked(line.len().checked_sub(SEAL)?)?;
    (seal(text).as_bytes() == found).then_some(text)
}

fn seal(text: &[u8]) -> String {
    format!("{:08x}\n", crc32fast::hash(text))
}

/// Returns a piece for each range, all of which has arrived.
pub(super) fn complete(ranges: &[Range<u64>]) -> Vec<JournalPiece> {
    let piece =
        |range: &Range<u64>| JournalPiece { start: range.start, done: range.end - range.start };
    ranges.iter().map(piece).collect()
}

/// Sorts ranges and merges those that touch.
pub(super) fn merged(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
    sorted.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Returns these ranges, in their order, without the bytes of `removed`.
#[must_use]
pub fn without(ranges: &[Range<u64>], removed: &Range<u64>) -> Vec<Range<u64>> {
    let parts = ranges.iter().flat_map(|range| {
        [range.start..range.end.min(removed.start), range.start.max(removed.end)..range.end]
    });
    parts.filter(|part| part.start < part.end).collect()
}

/// The length of a line in bytes.
pub(super) const LINE: usize = 64;

/// The length of a checksum and the line end.
const SEAL: usize = 9;
