//! Keeps a file that is streamed again and again out of the page cache: parts that were read a
//! while ago are dropped piece by piece, so that every byte comes from the disk each time.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;

use rustix::fs::{Advice, fadvise};

/// Drops from the page cache what a client has read of a file, which it reads over and over.
#[derive(Debug)]
pub(crate) struct DropBehind {
    file: File,
    position: FilePosition,
}

/// The position of a client, in bytes and pieces since it first began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FilePosition {
    /// The number of pieces of the file; a shorter piece at its end is never dropped.
    pieces: u64,
    read: u64,
    dropped: u64,
}

impl DropBehind {
    /// Follows a client that begins to read this file of `size` bytes.
    pub(crate) const fn new(file: File, size: u64) -> Self {
        let position = FilePosition { pieces: size / PIECE, read: 0, dropped: 0 };
        Self { file, position }
    }

    /// Records that `len` more bytes have been read, and drops the pieces before them.
    pub(crate) fn read(&mut self, len: u64) -> io::Result<()> {
        self.position.read += len;
        while let Some(offset) = self.position.next() {
            // The kernel keeps pages in folios of up to some MiB, and one that extends beyond the
            // end of a range stays: so the bytes before are dropped once more.
            let from = offset.saturating_sub(OVERLAP);
            let len = NonZeroU64::new(offset + PIECE - from);
            fadvise(&self.file, from, len, Advice::DontNeed)?;
        }
        Ok(())
    }
}

impl FilePosition {
    /// Returns the offset of the next piece to drop.
    fn next(&mut self) -> Option<u64> {
        if self.pieces == 0 || self.dropped + BEHIND > self.read / PIECE {
            return None;
        }
        let piece = self.dropped % self.pieces;
        self.dropped += 1;
        Some(piece * PIECE)
    }
}

/// The number of bytes dropped at once: few enough that nothing waits for it.
pub(super) const PIECE: u64 = 1 << 20;

/// The size of the largest folio that readahead creates, less a piece.
const OVERLAP: u64 = 3 * PIECE;

/// The number of pieces between the client and the dropped bytes: more than both sockets' buffers,
/// whose pages could not be dropped.
const BEHIND: u64 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_dropped_once_in_each_pass_well_behind_the_client() {
        let mut position = FilePosition { pieces: 20, read: 0, dropped: 0 };
        let mut found = Vec::new();
        for _ in 0..(60 * PIECE / 1000) {
            position.read += 1000;
            while let Some(offset) = position.next() {
                assert!(found.len() as u64 * PIECE + 16 * PIECE <= position.read);
                found.push(offset / PIECE);
            }
        }
        let around: Vec<u64> = (0..20).chain(0..20).collect();
        assert_eq!(found[..40], around);
        assert_eq!(found.len(), 60 - usize::try_from(BEHIND).unwrap());
    }

    #[test]
    fn a_file_without_a_whole_piece_is_left_alone() {
        let mut position = FilePosition { pieces: 0, read: 1 << 40, dropped: 0 };
        assert_eq!(position.next(), None);
    }
}
