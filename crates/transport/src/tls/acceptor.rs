//! The settings that all handshakes of a server share.

use std::sync::{Arc, OnceLock};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

use super::certificates::{ACME_PROTOCOL, Identities, Identity};
use super::error::TlsError;
use super::kernel_offer::KernelOffer;
use super::suites;

/// Accepts handshakes. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    identities: Identities,
    wanted: Arc<KernelOffer>,
}

impl Acceptor {
    /// Creates an acceptor with one identity for all clients. If `kernel` is true, the kernel
    /// encrypts where it can.
    ///
    /// # Errors
    ///
    /// [`TlsError::Refused`] if there is no source of randomness.
    pub fn new(identity: Identity, kernel: bool) -> Result<Self, TlsError> {
        let identities = Identities::default();
        identities.set_default(identity);
        Self::with_identities(identities, kernel)
    }

    /// Creates an acceptor with these identities, which may still be empty; clients for which there
    /// is none are refused.
    ///
    /// # Errors
    ///
    /// [`TlsError::Refused`] if there is no source of randomness.
    pub fn with_identities(identities: Identities, kernel: bool) -> Result<Self, TlsError> {
        let refused = |error: rustls::Error| TlsError::Refused(error.to_string());
        let wanted = KernelOffer::new(kernel);
        let mut config = ServerConfig::builder_with_provider(suites::provider(Some(&wanted)))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(refused)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(identities.clone()));
        config.alpn_protocols = suites::protocols();
        config.ignore_client_order = true;
        config.enable_secret_extraction = kernel;
        // A returning client presents its session, encrypted with a rotating key.
        config.ticketer = Ticketer::new().map_err(refused)?;
        Ok(Self { config: Arc::new(config), identities, wanted: Arc::new(wanted) })
    }

    /// Returns the identities, which can be changed. Earlier sessions can still be resumed.
    #[must_use]
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// Returns an acceptor that also answers the TLS challenges of certificate authorities.
    #[must_use]
    pub fn for_challenges(self) -> Self {
        let mut config = Arc::unwrap_or_clone(self.config);
        config.alpn_protocols.push(ACME_PROTOCOL.to_vec());
        Self { config: Arc::new(config), ..self }
    }

    /// Returns an acceptor for streams that are not HTTP, which negotiates no protocol.
    #[must_use]
    pub fn for_streams(self) -> Self {
        let mut config = Arc::unwrap_or_clone(self.config);
        config.alpn_protocols = Vec::new();
        Self { config: Arc::new(config), ..self }
    }

    /// Sets whether a network card that encrypts may read the pages of files directly
    /// (`TLS_TX_ZEROCOPY_RO`): a change before the peer has received them breaks the connection.
    #[must_use]
    pub fn zero_copy(self, wanted: bool) -> Self {
        let mut offer = Arc::unwrap_or_clone(self.wanted);
        offer.zero_copy = wanted;
        Self { wanted: Arc::new(offer), ..self }
    }

    /// Returns whether a signature takes so long (RSA) that it should not delay other connections
    /// of the thread.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.identities.is_slow()
    }

    /// Returns the settings of a handshake, and a place for the name that the client requests, if
    /// there are sites.
    pub(super) fn config(&self) -> (Arc<ServerConfig>, Option<Arc<RequestedName>>) {
        if !self.identities.has_sites() {
            return (Arc::clone(&self.config), None);
        }
        let identities = self.identities.clone();
        let sni = Arc::new(RequestedName { identities, name: OnceLock::new() });
        let mut config = ServerConfig::clone(&self.config);
        config.cert_resolver = Arc::clone(&sni) as Arc<dyn ResolvesServerCert>;
        (Arc::new(config), Some(sni))
    }

    /// Returns an acceptor with these capabilities of the kernel.
    #[cfg(test)]
    pub(super) fn with(self, wanted: KernelOffer) -> Self {
        Self { wanted: Arc::new(wanted), ..self }
    }

    /// Returns the requested capabilities of the kernel.
    pub(super) fn wanted(&self) -> Arc<KernelOffer> {
        Arc::clone(&self.wanted)
    }
}

/// The name that the client requests in one handshake: rustls reports it only to the resolver.
#[derive(Debug)]
pub(super) struct RequestedName {
    identities: Identities,
    name: OnceLock<Box<str>>,
}

impl RequestedName {
    /// Returns the name, if the client has requested one.
    pub(super) fn name(&self) -> Option<Box<str>> {
        self.name.get().cloned()
    }
}

impl ResolvesServerCert for RequestedName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if let Some(name) = hello.server_name() {
            // A second ClientHello has the same name.
            let _ = self.name.set(name.into());
        }
        self.identities.resolve(hello)
    }
}
