//! The pieces of a journal, each with its line, and lists of ranges.

use std::ops::Range;

/// A piece, of which the first `done` bytes have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalPiece {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) done: u64,
}

impl JournalPiece {
    pub(super) fn present(&self) -> Range<u64> {
        self.start..self.start + self.done
    }

    /// Formats the line of [`LINE`] bytes.
    pub(super) fn line(self) -> String {
        format!("{:020} {:020} {:020} \n", self.start, self.end, self.done)
    }

    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let text = str::from_utf8(line).ok()?.strip_suffix(" \n")?;
        let mut numbers = text.split(' ').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let (start, end, done) = (next()?, next()?, next()?);
        let is_sound = numbers.next().is_none() && start <= end && done <= end - start;
        is_sound.then_some(Self { start, end, done })
    }
}

/// Returns a piece for each range that is there.
pub(super) fn complete(ranges: &[Range<u64>]) -> Vec<JournalPiece> {
    let piece = |range: &Range<u64>| JournalPiece {
        start: range.start,
        end: range.end,
        done: range.end - range.start,
    };
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

/// Returns these ranges, in their order, without the bytes of another one.
#[must_use]
pub fn without(ranges: &[Range<u64>], removed: &Range<u64>) -> Vec<Range<u64>> {
    let parts = ranges.iter().flat_map(|range| {
        [range.start..range.end.min(removed.start), range.start.max(removed.end)..range.end]
    });
    parts.filter(|part| part.start < part.end).collect()
}

/// The length of a line in bytes.
pub(super) const LINE: usize = 64;
