//! What all handshakes of a server have in common.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SignatureAlgorithm};

use super::certificates::Identity;
use super::error::TlsError;
use super::place::KernelOffer;
use super::suites;

/// Accepts handshakes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    is_slow: bool,
    wanted: Arc<KernelOffer>,
}

impl Acceptor {
    /// `kernel` says whether the kernel is to take over where it can.
    ///
    /// # Errors
    ///
    /// [`TlsError::Refused`] if there is no source of randomness.
    pub fn new(identity: Identity, kernel: bool) -> Result<Self, TlsError> {
        let refused = |error: rustls::Error| TlsError::Refused(error.to_string());
        let wanted = KernelOffer::new(kernel);
        let mut config = ServerConfig::builder_with_provider(suites::provider(Some(&wanted)))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(refused)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Only(Arc::clone(identity.key()))));
        config.alpn_protocols = suites::protocols();
        config.ignore_client_order = true;
        config.enable_secret_extraction = kernel;
        // A client that comes back brings its session along, encrypted with a key that changes.
        config.ticketer = Ticketer::new().map_err(refused)?;
        Ok(Self { config: Arc::new(config), is_slow: is_slow(&identity), wanted: Arc::new(wanted) })
    }

    /// The same with another identity. Sessions of before can still be resumed.
    #[must_use]
    pub fn renewed(&self, identity: &Identity) -> Self {
        let mut config = ServerConfig::clone(&self.config);
        config.cert_resolver = Arc::new(Only(Arc::clone(identity.key())));
        Self { config: Arc::new(config), is_slow: is_slow(identity), ..self.clone() }
    }

    /// For streams that are not HTTP: agrees on no protocol.
    #[must_use]
    pub fn for_streams(self) -> Self {
        let mut config = Arc::unwrap_or_clone(self.config);
        config.alpn_protocols = Vec::new();
        Self { config: Arc::new(config), ..self }
    }

    /// Whether a network card that encrypts may read the pages of files themselves
    /// (`TLS_TX_ZEROCOPY_RO`): what then changes before the peer has it breaks the connection.
    #[must_use]
    pub fn zero_copy(self, wanted: bool) -> Self {
        let mut wish = Arc::unwrap_or_clone(self.wanted);
        wish.zero_copy = wanted;
        Self { wanted: Arc::new(wish), ..self }
    }

    /// Returns whether a signature takes so long (RSA) that others should not wait for it on
    /// their thread.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.is_slow
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// The same with a kernel that answers otherwise.
    #[cfg(test)]
    pub(super) fn with(self, wanted: KernelOffer) -> Self {
        Self { wanted: Arc::new(wanted), ..self }
    }

    /// Returns what is wanted of the kernel.
    pub(super) fn wanted(&self) -> Arc<KernelOffer> {
        Arc::clone(&self.wanted)
    }
}

fn is_slow(identity: &Identity) -> bool {
    identity.key().key.algorithm() == SignatureAlgorithm::RSA
}

/// One certificate for everybody.
#[derive(Debug)]
struct Only(Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}
