//! The bytes of a range of an archive, in order: some in memory, some still in files.

use std::ops::Range;

use super::header::{self, padding};
use super::layout::Layout;
use crate::version::FileVersion;

/// A part of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Headers, padding, the end: everything between two files, up to about 64 KiB.
    Bytes(Vec<u8>),
    /// A range of a member's contents.
    File {
        /// The path of the file relative to the archived folder.
        path: Vec<u8>,
        /// The file as it was when the archive was laid out.
        version: FileVersion,
        /// The offset of the range in the file.
        offset: u64,
        /// The length of the range; never zero.
        len: u64,
    },
}

impl Piece {
    /// Returns how many bytes it has.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Returns whether it has none. No piece of a [`Layout`] is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The pieces of a range, from [`Layout::pieces`].
#[derive(Debug)]
pub struct Pieces<'a> {
    layout: &'a Layout,
    /// The rest of the range.
    range: Range<u64>,
    /// The member in which it begins.
    index: usize,
    /// A header's path, kept for the sake of its memory.
    path: Vec<u8>,
}

impl Layout {
    /// Returns the bytes of a range, in order; a part after the end of the archive is left out.
    pub fn pieces(&self, range: Range<u64>) -> Pieces<'_> {
        let range = range.start..range.end.min(self.len());
        Pieces { layout: self, index: self.find(range.start), range, path: Vec::new() }
    }
}

impl Pieces<'_> {
    /// Returns how much of the part that ends at `end` is in the range, which then begins after
    /// it.
    fn take(&mut self, end: u64) -> u64 {
        let end = end.min(self.range.end);
        let len = end.saturating_sub(self.range.start);
        self.range.start += len;
        len
    }

    /// Adds a member's header, if the range begins in it.
    fn header(&mut self, data: u64, out: &mut Vec<u8>) {
        if self.range.start >= data {
            return;
        }
        let start = self.layout.start(self.index);
        let skipped = (self.range.start - start) as usize;
        let before = out.len();
        header::write(out, &self.layout.facts(self.index, &mut self.path));
        debug_assert_eq!((out.len() - before) as u64, data - start);
        out.drain(before..before + skipped);
        let len = self.take(data) as usize;
        out.truncate(before + len);
    }

    /// Returns a range of a member's contents.
    fn file(&mut self, data: u64, end: u64) -> Piece {
        let offset = self.range.start - data;
        let len = self.take(end);
        let mut path = Vec::new();
        self.layout.write_path(self.index, &mut path);
        Piece::File { path, version: self.layout.version(self.index), offset, len }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let mut bytes = Vec::new();
        while !self.range.is_empty() && bytes.len() < ENOUGH {
            if self.index == self.layout.members() {
                let zeros = self.take(self.layout.len());
                bytes.resize(bytes.len() + zeros as usize, 0);
                break;
            }
            let (size, next) = (self.layout.size(self.index), self.layout.start(self.index + 1));
            let padded = next - padding(size);
            let data = padded - size;
            self.header(data, &mut bytes);
            if self.range.start < padded && !self.range.is_empty() {
                if !bytes.is_empty() {
                    break;
                }
                return Some(self.file(data, padded));
            }
            let zeros = self.take(next);
            bytes.resize(bytes.len() + zeros as usize, 0);
            if self.range.start == next {
                self.index += 1;
            }
        }
        (!bytes.is_empty()).then_some(Piece::Bytes(bytes))
    }
}

/// The size from which bytes are returned, though more may follow before the next file: a folder
/// may have a million links and empty files.
const ENOUGH: usize = 64 << 10;
