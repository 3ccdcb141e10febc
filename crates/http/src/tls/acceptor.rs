//! What all handshakes of a server have in common.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SignatureAlgorithm};

use super::error::TlsError;
use super::identity::Identity;
use super::session::Why;
use super::suites;

/// Accepts handshakes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    is_slow: bool,
    kernel: bool,
}

impl Acceptor {
    /// `kernel` says whether the kernel is to take over where it can.
    ///
    /// # Errors
    ///
    /// [`TlsError::Refused`] if there is no source of randomness.
    pub fn new(identity: Identity, kernel: bool) -> Result<Self, TlsError> {
        let refused = |error: rustls::Error| TlsError::Refused(error.to_string());
        let mut config = ServerConfig::builder_with_provider(suites::provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(refused)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Only(Arc::clone(identity.key()))));
        config.alpn_protocols = suites::protocols();
        config.ignore_client_order = true;
        config.enable_secret_extraction = kernel;
        // Whoever comes back brings its session along, encrypted with a key that changes.
        config.ticketer = Ticketer::new().map_err(refused)?;
        Ok(Self { config: Arc::new(config), is_slow: is_slow(&identity), kernel })
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

    /// Whether a signature takes so long (RSA) that others should not wait for it on their thread.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.is_slow
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Why records cannot be left to the kernel, as far as it is known before a handshake.
    pub(super) fn place(&self) -> Option<Why> {
        (!self.kernel).then_some(Why::Unwanted)
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
