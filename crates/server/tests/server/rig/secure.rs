//! A certificate, a server with TLS, and a rustls client, which trusts only that certificate.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use underpass_server::Credentials;
pub use underpass_testkit::tls::Certificate;
use underpass_transport::tls::{Acceptor, Identity};

use super::{Client, Running, Site};

/// A client that speaks TLS.
pub type Secure = Client<StreamOwned<ClientConnection, TcpStream>>;

/// A certificate in the forms that the server and its clients take.
pub trait Usable {
    fn identity(&self) -> Identity;
    /// A client for each version.
    fn clients(&self) -> [ClientConfig; 2];
}

impl Usable for Certificate {
    fn identity(&self) -> Identity {
        let folder = self.folder.path();
        Identity::load(&folder.join("cert.pem"), &folder.join("key.pem")).unwrap()
    }

    fn clients(&self) -> [ClientConfig; 2] {
        [self.client(&[&TLS13]), self.client(&[&TLS12])]
    }
}

impl Site {
    /// The same over TLS.
    pub fn secure(mut self, certificate: &Certificate) -> Self {
        self.settings.tls =
            Some(Credentials::new(Acceptor::new(certificate.identity(), true).unwrap()));
        self.client = Some(certificate.client(&[&TLS13, &TLS12]));
        self
    }
}

impl Running {
    /// A connection with TLS; the handshake takes place with the first byte.
    pub fn secure(&self) -> Secure {
        self.secure_as(self.client.as_ref().unwrap())
    }

    pub fn secure_as(&self, config: &ClientConfig) -> Secure {
        over(TcpStream::connect(self.socket()).unwrap(), config)
    }

    /// A connection that takes little before it is read from.
    pub fn secure_narrow(&self) -> Secure {
        over(super::narrow(self.socket(), 32 << 10), self.client.as_ref().unwrap())
    }
}

/// A client over this connection.
pub fn over(stream: TcpStream, config: &ClientConfig) -> Secure {
    let stream = Client::new(stream).stream;
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
    Client::over(StreamOwned::new(connection, stream))
}

/// Whether the server has sent a close_notify, without another byte.
pub fn gets_close_notify(client: &mut Secure) -> bool {
    // rustls fails if the connection ends without a close_notify.
    matches!(client.stream.read(&mut [0]), Ok(0))
}
