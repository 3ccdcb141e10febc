//! Detects forbidden contents in TLS 1.3 records while they are decrypted.
//!
//! rustls ends such a connection too, but without an alert, and after its failure the caller cannot
//! send one: RFC 8446, 5.1 and 5.4, requires `unexpected_message`. So the decrypters of its
//! algorithms are wrapped, and report such contents as the one error for which rustls sends that
//! alert.

use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::{
    ConnectionTrafficSecrets, ContentType, Error, PeerMisbehaved, SupportedCipherSuite,
    Tls13CipherSuite,
};

/// Returns the suite with decrypters that check what they decrypt. TLS 1.2 suites are unchanged.
pub(super) fn checked(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let SupportedCipherSuite::Tls13(Tls13CipherSuite { common, hkdf_provider, aead_alg, .. }) =
        suite
    else {
        return suite;
    };
    // rustls requires suites with static lifetime. There are three, made once.
    SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: common.suite,
            hash_provider: common.hash_provider,
            confidentiality_limit: common.confidentiality_limit,
        },
        hkdf_provider: *hkdf_provider,
        aead_alg: Box::leak(Box::new(CheckedAlgorithm(*aead_alg))),
        quic: None,
    })))
}

struct CheckedAlgorithm(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for CheckedAlgorithm {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        self.0.encrypter(key, iv)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        let decrypter = self.0.decrypter(key, iv);
        Box::new(CheckedDecrypter { decrypter, messages: MessageFraming::default() })
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

/// Decrypts the records under one key. No message spans two keys.
struct CheckedDecrypter {
    decrypter: Box<dyn MessageDecrypter>,
    messages: MessageFraming,
}

impl MessageDecrypter for CheckedDecrypter {
    fn decrypt<'a>(
        &mut self,
        message: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let message = match self.decrypter.decrypt(message, sequence) {
            // A record of zeros, in which no type can be found.
            Err(Error::PeerMisbehaved(PeerMisbehaved::IllegalTlsInnerPlaintext)) => {
                return Err(UNEXPECTED_MESSAGE);
            }
            decrypted => decrypted?,
        };
        match message.typ {
            ContentType::Handshake if message.payload.is_empty() => Err(UNEXPECTED_MESSAGE),
            ContentType::Handshake => {
                self.messages.advance(message.payload);
                Ok(message)
            }
            _ if self.messages.is_within() => Err(UNEXPECTED_MESSAGE),
            _ => Ok(message),
        }
    }
}

/// Tracks where handshake messages begin and end in their records.
#[derive(Debug, Default)]
struct MessageFraming {
    /// The received part of a header: a type and three bytes of length.
    header: [u8; HEADER],
    header_len: usize,
    /// Bytes of the body that have not arrived.
    body_left: usize,
}

impl MessageFraming {
    fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.header_len < HEADER {
                let taken = bytes.len().min(HEADER - self.header_len);
                self.header[self.header_len..self.header_len + taken]
                    .copy_from_slice(&bytes[..taken]);
                self.header_len += taken;
                bytes = &bytes[taken..];
                let [_, high, middle, low] = self.header;
                self.body_left = u32::from_be_bytes([0, high, middle, low]) as usize;
            } else {
                let taken = bytes.len().min(self.body_left);
                self.body_left -= taken;
                bytes = &bytes[taken..];
            }
            if self.header_len == HEADER && self.body_left == 0 {
                self.header_len = 0;
            }
        }
    }

    /// Returns whether a message is incomplete.
    fn is_within(&self) -> bool {
        self.header_len > 0
    }
}

/// The error for which rustls sends an `unexpected_message` alert from within a decrypter.
const UNEXPECTED_MESSAGE: Error =
    Error::PeerMisbehaved(PeerMisbehaved::IllegalMiddleboxChangeCipherSpec);

/// The length of a message's header (RFC 8446, 4).
const HEADER: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_boundaries_do_not_depend_on_records() {
        let messages = [4, 0, 0, 3, 7, 8, 9, 24, 0, 0, 1, 0, 0, 0, 0, 0];
        let ends = [7, 12, 16];
        for cut in 1..=messages.len() {
            let mut framing = MessageFraming::default();
            let mut read = 0;
            for piece in messages.chunks(cut) {
                framing.advance(piece);
                read += piece.len();
                assert_eq!(framing.is_within(), !ends.contains(&read), "{cut} {read}");
            }
        }
    }
}
