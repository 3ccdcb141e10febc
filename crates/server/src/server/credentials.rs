//! The certificate of a server, which may be renewed while it runs.

use std::sync::{Arc, PoisonError, RwLock};

use underpass_transport::tls::{Acceptor, Identity};

/// The certificate of a server. All clones belong to the same server: a clone can renew the
/// certificate from any thread.
#[derive(Clone, Debug)]
pub struct Credentials(Arc<RwLock<Acceptor>>);

impl Credentials {
    /// Creates credentials from the acceptor that holds the first certificate.
    #[must_use]
    pub fn new(acceptor: Acceptor) -> Self {
        Self(Arc::new(RwLock::new(acceptor)))
    }

    /// Uses this certificate for new connections from now on. Open connections are unaffected, and
    /// earlier sessions can still be resumed.
    pub fn renew(&self, identity: &Identity) {
        let mut acceptor = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *acceptor = acceptor.renewed(identity);
    }

    /// Returns the current acceptor of handshakes.
    pub(crate) fn acceptor(&self) -> Acceptor {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
