//! Test data in which every byte depends on its position: lost, repeated or swapped bytes are
//! located, in a fraction of the time that a digest takes in an emulated machine.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use crate::Result;

/// The number of bytes generated, read and compared at a time; a whole number of words.
const PIECE: usize = 64 << 10;

/// Returns the eight bytes at `8 * index`. An odd multiplier maps each index to another word; in
/// the upper half of the product, close indices differ in every byte.
fn word(index: u64) -> [u8; 8] {
    let product = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product ^ (product >> 32)).to_le_bytes()
}

/// Fills `bytes`, whose first is at `at`, a multiple of eight.
fn fill(bytes: &mut [u8], at: u64) {
    for (index, chunk) in (at / 8..).zip(bytes.chunks_mut(8)) {
        chunk.copy_from_slice(&word(index)[..chunk.len()]);
    }
}

/// Writes the bytes from `from`, a multiple of eight, to `to`.
pub(crate) fn write(sink: &mut impl Write, from: u64, to: u64) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = from;
    while at < to {
        let part = PIECE.min(usize::try_from(to - at).unwrap_or(PIECE));
        fill(&mut piece[..part], at);
        sink.write_all(&piece[..part])?;
        at += part as u64;
    }
    Ok(())
}

/// Makes a file of the first `len` bytes.
pub(crate) fn file(path: &Path, len: u64) -> io::Result<()> {
    write(&mut File::create(path)?, 0, len)
}

/// The received bytes, compared as they arrive, in pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    /// The number of bytes so far, all of them correct.
    pub(crate) bytes: u64,
}

impl Arrived {
    /// Compares the next bytes with the expected ones.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let head = usize::try_from(self.bytes % 8)?;
        let mut expected = vec![0; head + bytes.len()];
        fill(&mut expected, self.bytes - head as u64);
        if let Some(at) = bytes.iter().zip(&expected[head..]).position(|(got, want)| got != want) {
            return Err(format!("the byte at {} is wrong", self.bytes + at as u64).into());
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Reads `len` bytes and compares them.
    pub(crate) fn read(&mut self, source: &mut impl Read, len: u64) -> Result<()> {
        let mut piece = vec![0; PIECE];
        let end = self.bytes + len;
        while self.bytes < end {
            let part = PIECE.min(usize::try_from(end - self.bytes).unwrap_or(PIECE));
            let got = source
                .read(&mut piece[..part])
                .map_err(|error| format!("after {} of {end} bytes: {error}", self.bytes))?;
            if got == 0 {
                return Err(format!("the end came after {} of {end} bytes", self.bytes).into());
            }
            self.take(&piece[..got])?;
        }
        Ok(())
    }
}

/// Fails unless the file has exactly the first `len` bytes.
pub(crate) fn compare(path: &Path, len: u64) -> Result<()> {
    let mut file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let has = file.metadata()?.len();
    if has != len {
        return Err(format!("{} has {has} bytes, not {len}", path.display()).into());
    }
    Arrived::default().read(&mut file, len)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Arrived, PIECE, write};

    #[test]
    fn the_pattern_is_accepted_in_pieces_of_any_size() {
        let mut bytes = Vec::new();
        write(&mut bytes, 0, PIECE as u64 + 13).unwrap();
        let mut arrived = Arrived::default();
        for piece in bytes.chunks(7) {
            arrived.take(piece).unwrap();
        }
        assert_eq!(arrived.bytes, PIECE as u64 + 13);
    }

    #[test]
    fn repeated_missing_and_changed_bytes_are_found() {
        let mut bytes = Vec::new();
        write(&mut bytes, 0, 2 * PIECE as u64).unwrap();
        for wrong in [&bytes[..8], &bytes[PIECE..PIECE + 8], &bytes[16..24], &bytes[7..15]] {
            let mut arrived = Arrived::default();
            arrived.take(&bytes[..8]).unwrap();
            assert!(arrived.take(wrong).is_err());
            assert_eq!(arrived.bytes, 8);
        }
        bytes[4242] ^= 1;
        let error = Arrived::default().take(&bytes).unwrap_err().to_string();
        assert_eq!(error, "the byte at 4242 is wrong");
    }
}
