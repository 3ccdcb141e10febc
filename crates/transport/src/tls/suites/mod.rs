//! The offered algorithms and their names.

mod framing;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::{CipherSuite, ProtocolVersion, SupportedCipherSuite};
use underpass_engine::ktls::{Cipher, TlsVersion};

use super::kernel_offer::KernelOffer;
use framing::checked;

/// The suites in order of preference: authenticated encryption with forward secrecy, all of which
/// the kernel can support. AES with the shorter key is first: it is the fastest on processors with
/// AES instructions.
static SUITES: LazyLock<[SupportedCipherSuite; 9]> = LazyLock::new(|| {
    [
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ]
    .map(checked)
});

/// Returns the algorithms for rustls. Suites that the kernel supports come first.
pub(super) fn provider(offer: Option<&KernelOffer>) -> Arc<CryptoProvider> {
    let mut suites = SUITES.to_vec();
    suites.sort_by_key(|suite| {
        let kind = kind_of(suite.suite());
        !kind.zip(offer).is_some_and(|((version, cipher), offer)| offer.prefers(version, cipher))
    });
    Arc::new(CryptoProvider {
        cipher_suites: suites,
        kx_groups: vec![
            kx_group::X25519,
            kx_group::SECP256R1,
            kx_group::SECP384R1,
            kx_group::X25519MLKEM768,
        ],
        ..default_provider()
    })
}

/// Returns the kernel's version and cipher for a suite; `None` if it has none.
pub(super) fn kind_of(suite: CipherSuite) -> Option<(TlsVersion, Cipher)> {
    use CipherSuite as Suite;
    Some(match suite {
        Suite::TLS13_AES_128_GCM_SHA256 => (TlsVersion::Tls13, Cipher::Aes128Gcm),
        Suite::TLS13_AES_256_GCM_SHA384 => (TlsVersion::Tls13, Cipher::Aes256Gcm),
        Suite::TLS13_CHACHA20_POLY1305_SHA256 => (TlsVersion::Tls13, Cipher::ChaCha20Poly1305),
        Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => (TlsVersion::Tls12, Cipher::Aes128Gcm),
        Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => (TlsVersion::Tls12, Cipher::Aes256Gcm),
        Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => {
            (TlsVersion::Tls12, Cipher::ChaCha20Poly1305)
        }
        _ => return None,
    })
}

/// Returns the name of a suite in the IANA registry.
pub(super) fn name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("unknown"),
    }
}

/// Returns the name of a version as OpenSSL and curl write it.
pub(super) fn version(version: Option<ProtocolVersion>) -> &'static str {
    match version {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "TLSv1.2",
    }
}

/// Returns the protocols to negotiate by ALPN (RFC 7301).
pub(super) fn protocols() -> Vec<Vec<u8>> {
    vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_is_supported_by_some_kernel() {
        for suite in SUITES.iter() {
            let (version, _) = kind_of(suite.suite()).unwrap();
            assert_eq!(version == TlsVersion::Tls13, suite.tls13().is_some());
            assert!(name(suite.suite()).starts_with("TLS_"), "{suite:?}");
        }
    }
}
