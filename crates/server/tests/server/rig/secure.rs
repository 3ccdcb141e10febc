//! A certificate, a server with TLS, and a client by rustls, which believes that certificate alone.

use std::io::Read;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use tempfile::TempDir;
use underpass_server::Credentials;
use underpass_transport::tls::{Acceptor, Identity};

use super::{Client, Running, Site};

/// A client that speaks TLS.
pub type Secure = Client<StreamOwned<ClientConnection, TcpStream>>;

/// A certificate for `localhost` in files.
pub struct Certificate {
    folder: TempDir,
    pem: String,
}

impl Certificate {
    pub fn new() -> Self {
        Self::of(&KeyPair::generate().unwrap())
    }

    /// One whose signatures take long.
    pub fn slow() -> Self {
        let rsa = &rcgen::PKCS_RSA_SHA256;
        Self::of(&KeyPair::generate_rsa_for(rsa, rcgen::RsaKeySize::_2048).unwrap())
    }

    fn of(key: &KeyPair) -> Self {
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let pem = params.self_signed(key).unwrap().pem();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cert.pem"), &pem).unwrap();
        std::fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
        Self { folder, pem }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn identity(&self) -> Identity {
        Identity::load(&self.path("cert.pem"), &self.path("key.pem")).unwrap()
    }

    pub fn credentials(&self) -> Credentials {
        Credentials::new(Acceptor::new(self.identity(), true).unwrap())
    }

    /// A client that believes it and knows these versions.
    pub fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    }

    /// One for each version.
    pub fn clients(&self) -> [Arc<ClientConfig>; 2] {
        [self.client(&[&TLS13]), self.client(&[&TLS12])]
    }
}

impl Site {
    /// The same over TLS.
    pub fn secure(mut self, certificate: &Certificate) -> Self {
        self.settings.tls = Some(certificate.credentials());
        self.client = Some(certificate.client(&[&TLS13, &TLS12]));
        self
    }
}

impl Running {
    /// A connection with TLS; hands are shaken with the first byte.
    pub fn secure(&self) -> Secure {
        self.secure_as(self.client.as_ref().unwrap())
    }

    pub fn secure_as(&self, config: &Arc<ClientConfig>) -> Secure {
        over(TcpStream::connect(self.socket()).unwrap(), config)
    }

    /// A connection that takes little before it is read from.
    pub fn secure_narrow(&self) -> Secure {
        over(super::narrow(self.socket(), 32 << 10), self.client.as_ref().unwrap())
    }
}

/// A client over this connection.
pub fn over(stream: TcpStream, config: &Arc<ClientConfig>) -> Secure {
    let stream = Client::new(stream).stream;
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    Client::over(StreamOwned::new(connection, stream))
}

/// Whether the server has said that nothing more follows, without another byte.
pub fn gets_close_notify(client: &mut Secure) -> bool {
    // rustls fails if the connection ends without a close_notify.
    matches!(client.stream.read(&mut [0]), Ok(0))
}
