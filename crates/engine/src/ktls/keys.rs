//! The keys of one direction, as `crypto_info` of linux/tls.h.

use std::fmt;

use rustix::io::Errno;

/// The negotiated version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2, RFC 5246.
    Tls12,
    /// TLS 1.3, RFC 8446.
    Tls13,
}

impl TlsVersion {
    /// Every version that the kernel may support, the newest first.
    pub const ALL: [Self; 2] = [Self::Tls13, Self::Tls12];

    /// Returns the name, such as `TLS 1.3`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        }
    }
}

/// The ciphers of TLS records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES in Galois counter mode with a key of 16 bytes.
    Aes128Gcm,
    /// AES in Galois counter mode with a key of 32 bytes.
    Aes256Gcm,
    /// `ChaCha20` with Poly1305, whose key has 32 bytes.
    ChaCha20Poly1305,
}

impl Cipher {
    /// Every cipher that kernel TLS is used with.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Returns the name, such as `AES-128-GCM`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "CHACHA20-POLY1305",
        }
    }

    /// Returns the length of a key in bytes.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => libc::TLS_CIPHER_AES_GCM_128_KEY_SIZE,
            Self::Aes256Gcm => libc::TLS_CIPHER_AES_GCM_256_KEY_SIZE,
            Self::ChaCha20Poly1305 => libc::TLS_CIPHER_CHACHA20_POLY1305_KEY_SIZE,
        }
    }

    const fn number(self) -> u16 {
        match self {
            Self::Aes128Gcm => libc::TLS_CIPHER_AES_GCM_128,
            Self::Aes256Gcm => libc::TLS_CIPHER_AES_GCM_256,
            Self::ChaCha20Poly1305 => libc::TLS_CIPHER_CHACHA20_POLY1305,
        }
    }
}

/// The direction of the bytes, seen from this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDirection {
    /// To the peer.
    Send,
    /// From the peer.
    Receive,
}

/// The keys of one direction.
#[derive(Clone, Copy)]
pub struct RecordKeys<'a> {
    /// The version of TLS.
    pub version: TlsVersion,
    /// The cipher, which the key's length must match.
    pub cipher: Cipher,
    /// The key itself.
    pub key: &'a [u8],
    /// The value that is combined with a record's number to form its nonce; for AES-GCM the first 4
    /// bytes are the salt. TLS 1.2 ignores the other 8: they may have preceded records sent
    /// earlier, so the kernel numbers its nonces by `sequence`.
    pub iv: &'a [u8; 12],
    /// The number of the next record.
    pub sequence: u64,
}

impl RecordKeys<'_> {
    /// Returns the structure that setsockopt(2) takes for the cipher.
    pub(super) fn encode(&self) -> Result<CryptoInfo, Errno> {
        if self.key.len() != self.cipher.key_len() {
            return Err(Errno::INVAL);
        }
        let version = match self.version {
            TlsVersion::Tls12 => libc::TLS_1_2_VERSION,
            TlsVersion::Tls13 => libc::TLS_1_3_VERSION,
        };
        let sequence = self.sequence.to_be_bytes();
        let (salt, iv) = match (self.cipher, self.version) {
            (Cipher::ChaCha20Poly1305, _) => (&[][..], &self.iv[..]),
            // RFC 5288 3: a nonce must not repeat, and its explicit part may be a counter.
            (_, TlsVersion::Tls12) => (&self.iv[..4], &sequence[..]),
            (_, TlsVersion::Tls13) => self.iv.split_at(4),
        };
        let mut info = CryptoInfo { bytes: [0; LARGEST], len: 0 };
        info.push(&version.to_ne_bytes());
        info.push(&self.cipher.number().to_ne_bytes());
        for part in [iv, self.key, salt, &sequence] {
            info.push(part);
        }
        Ok(info)
    }
}

impl fmt::Debug for RecordKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("version", &self.version)
            .field("cipher", &self.cipher)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

/// `tls12_crypto_info_…` of linux/tls.h: version, cipher, iv, key, salt and number of the next
/// record, without gaps. It is wiped when dropped.
pub(super) struct CryptoInfo {
    bytes: [u8; LARGEST],
    len: usize,
}

impl CryptoInfo {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, part: &[u8]) {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }
}

impl Drop for CryptoInfo {
    fn drop(&mut self) {
        self.bytes.fill(0);
        // The bytes are never read again, so the compiler could otherwise leave out the wiping.
        std::hint::black_box(&mut self.bytes);
    }
}

/// The size of the largest of the structures, in bytes.
const LARGEST: usize = size_of::<libc::tls12_crypto_info_aes_gcm_256>();

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    const IV: [u8; 12] = [1, 2, 3, 4, 11, 12, 13, 14, 15, 16, 17, 18];
    const SEQUENCE: [u8; 8] = [0, 0, 0, 0, 0, 0, 1, 2];

    fn encoded(version: TlsVersion, cipher: Cipher) -> Vec<u8> {
        let key = vec![9; cipher.key_len()];
        let keys = RecordKeys { version, cipher, key: &key, iv: &IV, sequence: 258 };
        keys.encode().unwrap().bytes().to_vec()
    }

    /// Offsets of iv, key, salt and sequence, and the length.
    macro_rules! layout {
        ($info:ident) => {
            [
                offset_of!(libc::$info, iv),
                offset_of!(libc::$info, key),
                offset_of!(libc::$info, salt),
                offset_of!(libc::$info, rec_seq),
                size_of::<libc::$info>(),
            ]
        };
    }

    #[test]
    fn each_cipher_is_encoded_as_the_kernels_structure() {
        let layouts = [
            (Cipher::Aes128Gcm, layout!(tls12_crypto_info_aes_gcm_128)),
            (Cipher::Aes256Gcm, layout!(tls12_crypto_info_aes_gcm_256)),
            (Cipher::ChaCha20Poly1305, layout!(tls12_crypto_info_chacha20_poly1305)),
        ];
        for (cipher, [iv, key, salt, sequence, len]) in layouts {
            let bytes = encoded(TlsVersion::Tls13, cipher);
            assert_eq!(bytes.len(), len, "{cipher:?}");
            assert_eq!(bytes[..2], 0x0304_u16.to_ne_bytes(), "{cipher:?}");
            assert_eq!(bytes[2..4], cipher.number().to_ne_bytes(), "{cipher:?}");
            assert_eq!([&bytes[salt..sequence], &bytes[iv..key]].concat(), IV, "{cipher:?}");
            assert_eq!(bytes[key..salt], vec![9; cipher.key_len()], "{cipher:?}");
            assert_eq!(bytes[sequence..], SEQUENCE, "{cipher:?}");
        }
    }

    #[test]
    fn nonces_of_tls_1_2_go_on_by_number() {
        let bytes = encoded(TlsVersion::Tls12, Cipher::Aes128Gcm);
        assert_eq!(bytes[..2], 0x0303_u16.to_ne_bytes());
        assert_eq!(bytes[4..12], SEQUENCE);
        assert_eq!(bytes[28..32], IV[..4]);
        assert_eq!(encoded(TlsVersion::Tls12, Cipher::ChaCha20Poly1305)[4..16], IV);
    }

    #[test]
    fn a_key_of_the_wrong_length_is_refused() {
        let (version, cipher) = (TlsVersion::Tls13, Cipher::Aes256Gcm);
        let keys = RecordKeys { version, cipher, key: &[0; 16], iv: &IV, sequence: 0 };
        assert_eq!(keys.encode().err(), Some(Errno::INVAL));
    }

    #[test]
    fn keys_are_not_shown() {
        let (version, cipher) = (TlsVersion::Tls13, Cipher::Aes128Gcm);
        let keys = RecordKeys { version, cipher, key: &[77; 16], iv: &[77; 12], sequence: 5 };
        let shown = format!("{keys:?}");
        assert!(shown.contains("Aes128Gcm") && !shown.contains("77"), "{shown}");
    }
}
