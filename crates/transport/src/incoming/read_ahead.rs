//! Bytes that were read before they are needed.

use std::ops::Deref;

/// A queue of bytes, which are appended at the end and taken from the front. Taking few of many
/// moves none of the others.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    bytes: Vec<u8>,
    /// The number of bytes already taken.
    taken: usize,
}

impl ReadAhead {
    /// Creates a queue of these bytes.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, taken: 0 }
    }

    /// Appends what `read` puts at the start of `max` bytes of zeros; it returns their number.
    pub(super) fn append<E>(
        &mut self,
        max: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let before = self.bytes.len();
        self.bytes.resize(before + max, 0);
        let outcome = read(&mut self.bytes[before..]);
        self.bytes.truncate(before + outcome.as_ref().map_or(0, |read| *read));
        outcome
    }

    /// Returns the number of bytes for which there is memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Removes `len` bytes, or all if there are fewer.
    pub(super) fn consume(&mut self, len: usize) {
        self.taken = (self.taken + len).min(self.bytes.len());
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        }
    }

    /// Removes and returns `len` bytes, or all if there are fewer.
    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        if len >= self.len() {
            return std::mem::take(self).into_vec();
        }
        let taken = self[..len].to_vec();
        self.consume(len);
        taken
    }

    /// Returns all bytes.
    pub(super) fn into_vec(mut self) -> Vec<u8> {
        self.bytes.drain(..self.taken);
        self.bytes
    }
}

impl Deref for ReadAhead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_taken_in_their_order() {
        let mut ahead = ReadAhead::new(b"abcdefgh".to_vec());
        ahead.consume(1);
        assert_eq!(ahead.take(2), b"bc");
        assert_eq!(&ahead[..], b"defgh");
        assert_eq!(ahead.take(9), b"defgh");
        assert!(ahead.is_empty());
        ahead.consume(1);
        assert_eq!(ahead.into_vec(), b"");
    }
}
