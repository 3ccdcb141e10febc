//! A hash that stays the same across releases, machines and restarts.
//!
//! Clients keep the ETag of an archive for as long as a download may be resumed, so std's hashers,
//! which may change with any release, are unsuitable. FNV-1a is ten lines that never change, and at
//! 128 bits two lists of members do not collide by chance. It does not resist a deliberate search
//! for collisions, and need not: an attacker would need write access to the served files, and could
//! then put anything into them.

use crate::version::FileTime;

/// FNV-1a with 128 bits.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint(u128);

impl Default for Fingerprint {
    fn default() -> Self {
        Self::new()
    }
}

impl Fingerprint {
    /// Creates the fingerprint of no bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// Adds a number to the hash.
    pub fn number(&mut self, number: u64) {
        self.raw(&number.to_le_bytes());
    }

    /// Adds a time to the hash.
    pub fn time(&mut self, time: FileTime) {
        self.number(time.seconds.cast_unsigned());
        self.number(time.nanoseconds.into());
    }

    /// Adds bytes to the hash, so that their end cannot be confused with the beginning of what
    /// follows.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Returns the hash of everything added.
    #[must_use]
    pub const fn value(self) -> u128 {
        self.0
    }

    fn raw(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 =
                (self.0 ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // From the test vectors of draft-eastlake-fnv.
        for (bytes, hash) in [
            (&b""[..], 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d),
            (b"a", 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964),
            (b"foobar", 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18),
        ] {
            let mut fingerprint = Fingerprint::new();
            fingerprint.raw(bytes);
            assert_eq!(fingerprint.value(), hash);
        }
    }
}
