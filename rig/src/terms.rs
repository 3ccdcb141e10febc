//! What the peers of the checks negotiate: versions and suites of TLS, and certificates.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};

use crate::{Result, disguise};

/// Returns a client that offers only this suite, or all if none is given.
pub(crate) fn client(suite: Option<CipherSuite>) -> Result<Arc<ClientConfig>> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|offered| suite.is_none_or(|only| offered.suite() == only));
    client_by(provider)
}

/// Returns a client that can send records of any type.
pub(crate) fn disguised_client() -> Result<Arc<ClientConfig>> {
    client_by(disguise::provider())
}

fn client_by(provider: CryptoProvider) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(provider);
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(&provider))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(Arc::clone(&provider))))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the versions that the suites of a provider belong to: rustls refuses one without suites.
fn versions(provider: &CryptoProvider) -> Vec<&'static SupportedProtocolVersion> {
    let has = |version: &SupportedProtocolVersion| {
        provider.cipher_suites.iter().any(|suite| suite.version().version == version.version)
    };
    rustls::ALL_VERSIONS.iter().copied().filter(|version| has(version)).collect()
}

/// Returns a server with a self-signed certificate.
pub(crate) fn server() -> Result<Arc<ServerConfig>> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(rustls::ALL_VERSIONS)?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Accepts any certificate, because certificates are tested elsewhere. Signatures are checked, so
/// that the handshake is realistic.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
