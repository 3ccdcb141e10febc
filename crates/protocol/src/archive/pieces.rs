//! The bytes of a range of an archive, in order: some in memory, some still in files.

use std::fmt;
use std::ops::Range;

use super::format::ArchiveFormat;
use super::header::MemberType;
use super::layout::Layout;
use super::zip;
use crate::version::FileVersion;

/// A part of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchivePiece {
    /// Headers, padding and the end of the archive: all between two files, up to about 64 KiB.
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
    /// No bytes, but a request for the CRC-32 of a member, which the next bytes of a zip need.
    /// They follow once [`Layout::pieces_with`] can look it up.
    Checksum {
        /// The path of the file relative to the archived folder.
        path: Vec<u8>,
        /// The file as it was when the archive was laid out.
        version: FileVersion,
    },
}

impl ArchivePiece {
    /// Returns how many bytes it has.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
            Self::Checksum { .. } => 0,
        }
    }

    /// Returns whether it has no bytes, which is true only for a checksum.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The pieces of a range, from [`Layout::pieces`].
pub struct ArchivePieces<'a> {
    layout: &'a Layout,
    /// Looks up the CRC-32 of a file.
    checksums: &'a dyn Fn(&FileVersion) -> Option<u32>,
    /// The rest of the range.
    range: Range<u64>,
    /// The member in which it begins.
    index: usize,
    /// The entry of a zip's directory in which it begins, and the offset of that entry in the
    /// directory.
    entry: Option<(usize, u64)>,
    /// A header's path, kept to reuse its memory.
    path: Vec<u8>,
}

impl Layout {
    /// Returns the bytes of a range of a tar, in order; a part after the end of the archive is left
    /// out. Those of a zip need [`pieces_with`](Self::pieces_with).
    #[must_use]
    pub fn pieces(&self, range: Range<u64>) -> ArchivePieces<'_> {
        self.pieces_with(range, &|_| None)
    }

    /// Returns the bytes of a range, in order. `checksums` looks up the CRC-32 of a file in a
    /// version; if it does not have one, [`ArchivePiece::Checksum`] requests it.
    pub fn pieces_with<'a>(
        &'a self,
        range: Range<u64>,
        checksums: &'a dyn Fn(&FileVersion) -> Option<u32>,
    ) -> ArchivePieces<'a> {
        let range = range.start..range.end.min(self.len());
        let index = self.find(range.start);
        ArchivePieces { layout: self, checksums, range, index, entry: None, path: Vec::new() }
    }
}

impl ArchivePieces<'_> {
    /// Returns how much of the part that ends at `end` is in the range, which then begins after
    /// it.
    fn take(&mut self, end: u64) -> u64 {
        let end = end.min(self.range.end);
        let len = end.saturating_sub(self.range.start);
        self.range.start += len;
        len
    }

    /// Cuts a record that begins at offset `start`, and was written to the end of `out` from
    /// `before` on, to its part in the range.
    fn cut(&mut self, start: u64, before: usize, out: &mut Vec<u8>) {
        let end = start + (out.len() - before) as u64;
        out.drain(before..before + (self.range.start - start) as usize);
        let len = self.take(end) as usize;
        out.truncate(before + len);
    }

    /// Adds a member's header, if the range begins in it.
    fn head(&mut self, data: u64, out: &mut Vec<u8>) {
        if self.range.start >= data {
            return;
        }
        let (start, before) = (self.layout.start(self.index), out.len());
        let facts = self.layout.facts(self.index, &mut self.path);
        self.layout.format().write_head(out, &facts);
        debug_assert_eq!((out.len() - before) as u64, data - start);
        self.cut(start, before, out);
    }

    /// Returns a range of a member's contents.
    fn file(&mut self, data: u64, end: u64) -> ArchivePiece {
        let offset = self.range.start - data;
        let len = self.take(end);
        let (path, version) = self.whereabouts(self.index);
        ArchivePiece::File { path, version, offset, len }
    }

    /// Adds what follows a member's contents.
    fn tail(&mut self, end: u64, next: u64, out: &mut Vec<u8>) -> Result<(), NoChecksum> {
        match self.layout.format() {
            ArchiveFormat::Tar => {
                let zeros = self.take(next);
                out.resize(out.len() + zeros as usize, 0);
            }
            ArchiveFormat::Zip if self.range.start < next => {
                let crc = self.checksum(self.index)?;
                let before = out.len();
                zip::write_tail(out, self.layout.size(self.index), crc);
                self.cut(end, before, out);
            }
            ArchiveFormat::Zip => {}
        }
        Ok(())
    }

    /// Adds the end of the archive, but at most about [`MIN_PIECE`] bytes of it.
    fn trailer(&mut self, out: &mut Vec<u8>) -> Result<(), NoChecksum> {
        if self.layout.format() == ArchiveFormat::Tar {
            let zeros = self.take(self.layout.len());
            out.resize(out.len() + zeros as usize, 0);
            return Ok(());
        }
        let (members, start) = (self.layout.members(), self.layout.start(self.layout.members()));
        let len = self.layout.directory().len;
        while !self.range.is_empty() && self.range.start < start + len {
            if out.len() >= MIN_PIECE {
                return Ok(());
            }
            let (index, at) = self.entry();
            let crc = self.checksum(index)?;
            let before = out.len();
            let facts = self.layout.facts(index, &mut self.path);
            zip::write_entry(out, &facts, self.layout.start(index), crc);
            let next = at + (out.len() - before) as u64;
            self.entry = Some((index + 1, next));
            self.cut(start + at, before, out);
        }
        if !self.range.is_empty() {
            let before = out.len();
            zip::write_end(out, members as u64, start, len);
            self.cut(start + len, before, out);
        }
        Ok(())
    }

    /// Returns the entry of the directory in which the range begins, and its offset in the
    /// directory.
    fn entry(&mut self) -> (usize, u64) {
        let wanted = self.range.start - self.layout.start(self.layout.members());
        let (mut index, mut at) =
            self.entry.unwrap_or_else(|| self.layout.directory().near(wanted));
        loop {
            let start = self.layout.start(index);
            let next = at + zip::entry_len(&self.layout.facts(index, &mut self.path), start);
            if next > wanted {
                return (index, at);
            }
            (index, at) = (index + 1, next);
        }
    }

    /// Returns the CRC-32 of a member; that of a link is made with its record.
    fn checksum(&mut self, index: usize) -> Result<u32, NoChecksum> {
        let facts = self.layout.facts(index, &mut self.path);
        if facts.kind != MemberType::File || !zip::has_descriptor(facts.size) {
            return Ok(0);
        }
        (self.checksums)(&self.layout.version(index)).ok_or(NoChecksum(index))
    }

    /// Returns a member's path relative to the archived folder, and its version.
    fn whereabouts(&self, index: usize) -> (Vec<u8>, FileVersion) {
        let mut path = Vec::new();
        self.layout.write_path(index, &mut path);
        (path, self.layout.version(index))
    }
}

impl Iterator for ArchivePieces<'_> {
    type Item = ArchivePiece;

    fn next(&mut self) -> Option<ArchivePiece> {
        let mut bytes = Vec::new();
        while !self.range.is_empty() && bytes.len() < MIN_PIECE {
            let added = if self.index == self.layout.members() {
                self.trailer(&mut bytes)
            } else {
                let next = self.layout.start(self.index + 1);
                let facts = self.layout.facts(self.index, &mut self.path);
                let end = next - self.layout.format().tail_len(&facts);
                let data = end - facts.size;
                self.head(data, &mut bytes);
                if self.range.start < end && !self.range.is_empty() {
                    if !bytes.is_empty() {
                        break;
                    }
                    return Some(self.file(data, end));
                }
                let added =
                    if self.range.is_empty() { Ok(()) } else { self.tail(end, next, &mut bytes) };
                if self.range.start == next {
                    self.index += 1;
                }
                added
            };
            if let Err(NoChecksum(index)) = added {
                if !bytes.is_empty() {
                    break;
                }
                let (path, version) = self.whereabouts(index);
                return Some(ArchivePiece::Checksum { path, version });
            }
        }
        (!bytes.is_empty()).then_some(ArchivePiece::Bytes(bytes))
    }
}

impl fmt::Debug for ArchivePieces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("layout", &self.layout).field("range", &self.range).finish()
    }
}

/// The CRC-32 of the member with this number is needed.
struct NoChecksum(usize);

/// The size from which bytes are returned, though more may follow before the next file: a folder
/// may have a million links and empty files.
const MIN_PIECE: usize = 64 << 10;
