//! The settings that all handshakes of a client share: which servers it trusts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use super::certificates::CertificateFacts;
use super::certificates::read_certificates;
use super::error::{Fault, HandshakeError, TlsError, VerifyError};
use super::kernel_offer::KernelOffer;
use super::suites;
use crate::trust::{Pin, Trust};

/// Begins handshakes. It is cheap to clone, and remembers sessions to resume them.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
    wanted: Arc<KernelOffer>,
}

impl Connector {
    /// Loads the certificate authorities: those that `trust` names, otherwise the system's or those
    /// of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    ///
    /// # Errors
    ///
    /// See [`TlsError`].
    pub fn new(trust: &Trust) -> Result<Self, TlsError> {
        let refused = |error: Error| TlsError::Refused(error.to_string());
        let wanted = KernelOffer::new(trust.kernel);
        let provider = suites::provider(Some(&wanted));
        let file = trust.authorities.as_deref();
        let named = match file {
            Some(file) => read_certificates(file)?,
            None if trust.insecure => Vec::new(),
            // Some systems have a few unreadable certificates; the others are still used.
            None => rustls_native_certs::load_native_certs().certs,
        };
        let believed =
            if trust.insecure { None } else { Some(authorities(file, &named, &provider)?) };
        let verifier =
            Verifier { believed, named, pins: trust.pins.clone(), provider: Arc::clone(&provider) };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(refused)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = suites::protocols();
        config.enable_secret_extraction = trust.kernel;
        Ok(Self { config: Arc::new(config), wanted: Arc::new(wanted) })
    }

    /// Returns a connector for streams that are not HTTP, which requests no protocol.
    #[must_use]
    pub fn for_streams(self) -> Self {
        let mut config = Arc::unwrap_or_clone(self.config);
        config.alpn_protocols = Vec::new();
        Self { config: Arc::new(config), ..self }
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// Returns a connector with these capabilities of the kernel.
    #[cfg(test)]
    pub(super) fn with(self, wanted: KernelOffer) -> Self {
        Self { wanted: Arc::new(wanted), ..self }
    }

    /// Returns the requested capabilities of the kernel.
    pub(super) fn wanted(&self) -> Arc<KernelOffer> {
        Arc::clone(&self.wanted)
    }
}

/// Returns the name that the server's certificate must have.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, HandshakeError> {
    let without_zone = host.split('%').next().unwrap_or(host);
    ServerName::try_from(without_zone.to_owned()).map_err(|_| HandshakeError::Name(host.to_owned()))
}

/// Creates the verifier for the certificate authorities of a file, or for the system's.
fn authorities(
    file: Option<&Path>,
    named: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = file {
        for certificate in named {
            roots.add(certificate.clone()).map_err(|error| {
                let fault = Fault::BadCertificate(error.to_string());
                TlsError::Unusable { path: path.to_owned(), fault }
            })?;
        }
    } else {
        roots.add_parsable_certificates(named.iter().cloned());
    }
    if roots.is_empty() {
        return Err(TlsError::NoAuthorities);
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| TlsError::Refused(error.to_string()))
}

/// Verifies a server by certificate authorities, by its key, by both, or not at all; it always
/// checks that the server has the private key.
#[derive(Debug)]
struct Verifier {
    /// `None` if every server is trusted.
    believed: Option<Arc<WebPkiServerVerifier>>,
    /// The certificates of the given file, or the system's: one of them may be the server's own.
    named: Vec<CertificateDer<'static>>,
    pins: Vec<Pin>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_named = self.named.iter().any(|named| named == certificate);
        if self.believed.is_some() && is_named {
            // This ignores the issuer: `openssl req -x509` marks its certificates as CA
            // certificates, which webpki does not accept from a server.
            let parsed = ParsedCertificate::try_from(certificate)?;
            verify_server_name(&parsed, name)?;
            verify_time(certificate, now)?;
        } else if let Some(verifier) = &self.believed {
            verifier
                .verify_server_cert(certificate, intermediates, name, ocsp, now)
                .map_err(|error| explained(error, certificate))?;
        }
        if !self.pins.is_empty() {
            let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
            let pin = Pin::of(&key);
            if !self.pins.contains(&pin) {
                return Err(because(VerifyError::NotPinned(pin)));
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Checks that the certificate is valid at this time.
fn verify_time(certificate: &[u8], now: UnixTime) -> Result<(), Error> {
    let facts = CertificateFacts::of(certificate).ok_or(CertificateError::BadEncoding)?;
    let unix = |moment: Timestamp| {
        let seconds = moment.as_second().try_into().unwrap_or(0);
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    };
    let (not_before, not_after) = (unix(facts.not_before), unix(facts.not_after));
    if now < not_before {
        Err(CertificateError::NotValidYetContext { time: now, not_before }.into())
    } else if now > not_after {
        Err(CertificateError::ExpiredContext { time: now, not_after }.into())
    } else {
        Ok(())
    }
}

/// Distinguishes a self-signed certificate from one of an unknown issuer, whatever error webpki
/// reports first: that it is a CA certificate, or that a trusted issuer of the same name has
/// another key.
fn explained(error: Error, certificate: &[u8]) -> Error {
    use CertificateError as Fault;
    let Error::InvalidCertificate(fault) = error else { return error };
    let is_self_signed =
        || CertificateFacts::of(certificate).is_some_and(|facts| facts.is_self_signed);
    match fault {
        Fault::ExpiredContext { .. }
        | Fault::NotValidYetContext { .. }
        | Fault::NotValidForNameContext { .. }
        | Fault::BadEncoding => fault.into(),
        _ if is_self_signed() => because(VerifyError::SelfSigned),
        Fault::BadSignature => Fault::UnknownIssuer.into(),
        other => other.into(),
    }
}

fn because(error: VerifyError) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}
