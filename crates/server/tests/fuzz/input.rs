//! Takes numbers and names from random bytes.

/// The bytes that are left.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.take(8).iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}
