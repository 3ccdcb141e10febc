//! With which certificate a server answers; it may change while it runs.

use std::sync::{Arc, PoisonError, RwLock};

use crate::tls::{Acceptor, Identity};

/// With which certificate a server answers. Copies are of the same server: who keeps one can renew
/// the certificate, from any thread.
#[derive(Clone, Debug)]
pub struct Credentials(Arc<RwLock<Acceptor>>);

impl Credentials {
    /// Those with which this acceptor was made.
    #[must_use]
    pub fn new(acceptor: Acceptor) -> Self {
        Self(Arc::new(RwLock::new(acceptor)))
    }

    /// From now on new connections are shown this certificate. Those that there are go on as they
    /// are, and sessions of before can still be resumed.
    pub fn renew(&self, identity: &Identity) {
        let mut acceptor = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *acceptor = acceptor.renewed(identity);
    }

    /// What accepts handshakes at this moment.
    pub(crate) fn acceptor(&self) -> Acceptor {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
