//! A TLS 1.3 provider for peers that send records of any type with valid encryption. The checks in
//! virtual machines use it too.

use rustls::crypto::cipher::{
    AeadKey, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundOpaqueMessage,
    OutboundPlainMessage, Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::crypto::{CipherSuiteCommon, CryptoProvider, aws_lc_rs};
use rustls::{
    ConnectionTrafficSecrets, ContentType, Error, SupportedCipherSuite, Tls13CipherSuite,
};

/// Returns the bytes that a peer writes to send a record of this type and content.
pub(crate) fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [DISGUISE, &[kind], content].concat()
}

/// Returns the usual provider with one suite, whose records can be disguised.
pub(crate) fn provider() -> CryptoProvider {
    let usual = aws_lc_rs::default_provider();
    let suites = usual.cipher_suites.iter();
    let disguised = suites.filter_map(SupportedCipherSuite::tls13).take(1).map(|suite| {
        let suite: &'static Tls13CipherSuite = Box::leak(Box::new(Tls13CipherSuite {
            common: CipherSuiteCommon {
                suite: suite.common.suite,
                hash_provider: suite.common.hash_provider,
                confidentiality_limit: suite.common.confidentiality_limit,
            },
            hkdf_provider: suite.hkdf_provider,
            aead_alg: Box::leak(Box::new(Disguising(suite.aead_alg))),
            quic: None,
        }));
        SupportedCipherSuite::Tls13(suite)
    });
    CryptoProvider { cipher_suites: disguised.collect(), ..usual.clone() }
}

/// Data with this prefix is sent as a record of the type in the next byte.
const DISGUISE: &[u8] = b"as type ";

/// An algorithm whose encrypter can be told the type of a record.
struct Disguising(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for Disguising {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(DisguisingEncrypter(self.0.encrypter(key, iv)))
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.0.decrypter(key, iv)
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
}

struct DisguisingEncrypter(Box<dyn MessageEncrypter>);

impl MessageEncrypter for DisguisingEncrypter {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        sequence: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let bytes = message.payload.to_vec();
        let Some((kind, content)) = bytes.strip_prefix(DISGUISE).and_then(<[u8]>::split_first)
        else {
            return self.0.encrypt(message, sequence);
        };
        let disguised = OutboundPlainMessage {
            typ: ContentType::from(*kind),
            version: message.version,
            payload: OutboundChunks::Single(content),
        };
        self.0.encrypt(disguised, sequence)
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        self.0.encrypted_payload_len(payload_len)
    }
}
