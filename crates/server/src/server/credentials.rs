//! The certificates of a server, which may be renewed while it runs.

use underpass_protocol::request::host_map::HostMap;
use underpass_transport::tls::{Acceptor, Identities, Identity};

/// The certificates of a server. All clones belong to the same server: a clone can renew them from
/// any thread.
#[derive(Clone, Debug)]
pub struct Credentials(Acceptor);

impl Credentials {
    /// Creates credentials from the acceptor that holds the first certificates.
    #[must_use]
    pub fn new(acceptor: Acceptor) -> Self {
        Self(acceptor)
    }

    /// Uses this certificate for new connections from now on. Open connections are unaffected, and
    /// earlier sessions can still be resumed.
    pub fn renew(&self, identity: Identity) {
        self.0.identities().set_default(identity);
    }

    /// Presents these certificates to clients that request their names, and the default one to all
    /// others and for names without a certificate.
    pub(crate) fn show(&self, identities: HostMap<Option<Identity>>) {
        self.0.identities().set_sites(identities);
    }

    /// Returns the certificates by name, and the answers to challenges of certificate authorities.
    pub(crate) fn identities(&self) -> &Identities {
        self.0.identities()
    }

    /// Returns the acceptor of handshakes.
    pub(crate) fn acceptor(&self) -> &Acceptor {
        &self.0
    }
}
