//! Counts the use of a key: AES-GCM is safe for a limited number of records under one key.

use underpass_engine::ktls::Cipher;

/// Bytes of a full record.
const RECORD: u64 = 16 * 1024;

/// The most records under one AES-GCM key (RFC 8446 5.5), with room for a step in progress.
const MAX_RECORDS: u64 = (1 << 24) - (1 << 20);

/// The number of records after which a new key is requested, early enough to wait for a slow peer.
const EARLY: u64 = 1 << 23;

/// Counts the records under one key. The kernel does not report the number, so this is an upper
/// bound: one per 16 KiB and one per call.
#[derive(Debug)]
pub(in crate::tls) struct KeyUsage {
    records: u64,
    /// `None` for a cipher without a limit.
    max: Option<u64>,
    can_renew: bool,
}

impl KeyUsage {
    pub(in crate::tls) fn new(cipher: Cipher, can_renew: bool, records: u64) -> Self {
        Self {
            records,
            max: (cipher != Cipher::ChaCha20Poly1305).then_some(MAX_RECORDS),
            can_renew,
        }
    }

    /// Counts the records of one call, and returns whether it is time for a new key.
    pub(in crate::tls) fn by(&mut self, bytes: usize) -> bool {
        self.records = self.records.saturating_add(bytes as u64 / RECORD + 1);
        self.can_renew && self.max.is_some() && self.records >= EARLY
    }

    /// Returns whether nothing more may be sent under this key.
    pub(in crate::tls) fn is_over(&self) -> bool {
        self.max.is_some_and(|max| self.records >= max)
    }

    /// Restarts the count for a new key.
    pub(in crate::tls) fn renew(&mut self) {
        self.records = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_renewed_early_or_ends() {
        let gib = 1 << 30; // 65 537 records
        let mut usage = KeyUsage::new(Cipher::Aes128Gcm, true, 1);
        let calls = std::iter::repeat_with(|| usage.by(gib)).take_while(|is_time| !is_time).count();
        assert_eq!(calls, 127);
        assert!(!usage.is_over());
        usage.renew();
        assert!(!usage.by(gib) && !usage.is_over());

        let mut usage = KeyUsage::new(Cipher::Aes256Gcm, false, 0);
        let mut calls = 0;
        while !usage.is_over() {
            assert!(!usage.by(gib), "there is no new key");
            calls += 1;
        }
        assert_eq!(calls, 240);

        let mut usage = KeyUsage::new(Cipher::ChaCha20Poly1305, true, u64::MAX - 1);
        assert!(!usage.by(gib) && !usage.is_over());
    }
}
