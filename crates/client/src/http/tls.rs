//! The state shared by all connections to `https` servers: trusted certificate authorities and
//! resumable sessions.

use std::net::TcpStream;
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use underpass_engine::wait::Limits;
use underpass_transport::tls::{Connector, Handshake, HandshakeError, Session, TlsError, Trust};
use url::Url;

use super::connect::address;
use crate::error::{ClientError, ConnectionError, NetworkAction};

/// The trusted certificate authorities and the keys of `https` servers.
///
/// All connections of a run share one, including its resumable sessions. The system's certificate
/// authorities are loaded on first use.
#[derive(Clone, Debug, Default)]
pub struct TlsSetup {
    trust: Arc<Trust>,
    connector: Arc<OnceLock<Connector>>,
}

impl TlsSetup {
    /// Creates a setup with this trust.
    #[must_use]
    pub fn new(trust: Trust) -> Self {
        Self { trust: Arc::new(trust), connector: Arc::default() }
    }

    /// Returns the connector, which starts handshakes.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if the certificate authorities cannot be read.
    pub fn connector(&self) -> Result<Connector, TlsError> {
        if let Some(connector) = self.connector.get() {
            return Ok(connector.clone());
        }
        let connector = Connector::new(&self.trust)?;
        // Another thread may have set it meanwhile.
        Ok(self.connector.get_or_init(|| connector).clone())
    }

    /// Performs the handshake with the server of a URL.
    pub(super) fn handshake(
        &self,
        stream: &TcpStream,
        url: &Url,
        limits: Limits<'_>,
    ) -> Result<Session, ClientError> {
        let connector =
            self.connector().map_err(|error| ConnectionError::Authorities(Box::new(error)))?;
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        Handshake::connect(&connector, host)
            .and_then(|handshake| handshake.complete(stream, limits))
            .map_err(|error| sorted(error, address(url)))
    }
}

/// Converts a handshake error.
fn sorted(error: HandshakeError, address: String) -> ClientError {
    match error {
        HandshakeError::Io(source) if Errno::from_io_error(&source) == Some(Errno::INTR) => {
            ClientError::Cancelled
        }
        HandshakeError::Io(source) => {
            ConnectionError::Network { action: NetworkAction::Handshaking, address, source }.into()
        }
        error => ConnectionError::Tls { address, error: Box::new(error) }.into(),
    }
}
