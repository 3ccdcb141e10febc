//! Certificates, and ordinary rustls clients and servers that use them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tempfile::TempDir;

/// A certificate and its key, which are also in the files `cert.pem` and `key.pem`.
#[derive(Debug)]
pub struct Certificate {
    /// The folder of both files.
    pub folder: TempDir,
    /// The certificate.
    pub pem: String,
    /// The key.
    pub key: String,
}

#[allow(clippy::new_without_default)] // it creates files
impl Certificate {
    /// Creates a certificate for `localhost` and 127.0.0.1, with rcgen's defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    /// Creates such a certificate with changed parameters.
    pub fn with(change: impl FnOnce(&mut CertificateParams)) -> Self {
        Self::signed(KeyPair::generate().unwrap(), change)
    }

    /// Creates a certificate whose signatures take long.
    #[must_use]
    pub fn slow() -> Self {
        let rsa = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048);
        Self::signed(rsa.unwrap(), |_| ())
    }

    fn signed(key: KeyPair, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        Self::of(&params.self_signed(&key).unwrap().pem(), &key.serialize_pem())
    }

    /// Returns a certificate given as PEM, with its key.
    #[must_use]
    pub fn of(pem: &str, key: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cert.pem"), pem).unwrap();
        let key_path = folder.path().join("key.pem");
        fs::write(&key_path, key).unwrap();
        fs::set_permissions(key_path, Permissions::from_mode(0o600)).unwrap();
        Self { folder, pem: pem.to_owned(), key: key.to_owned() }
    }

    /// Returns a client that trusts only this certificate.
    #[must_use]
    pub fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        self.client_by(provider(), versions)
    }

    /// Returns such a client with a given crypto provider.
    #[must_use]
    pub fn client_by(
        &self,
        provider: Arc<CryptoProvider>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    /// Returns a server that presents this certificate.
    #[must_use]
    pub fn server(&self, versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
        let chain = vec![CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap()
    }
}

/// Returns all algorithms of rustls, including those that we would not choose.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Writes a certificate for these names and its key into a folder, and returns the paths of both.
///
/// # Panics
///
/// If they cannot be written.
pub fn certificate(folder: &Path, stem: &str, names: &[&str]) -> (String, String) {
    let all: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let (mut params, key) = (CertificateParams::new(all).unwrap(), KeyPair::generate().unwrap());
    params.distinguished_name.push(DnType::CommonName, names[0]);
    let at = |kind| format!("{}/{stem}.{kind}", folder.display());
    fs::write(at("pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(at("key"), key.serialize_pem()).unwrap();
    fs::set_permissions(at("key"), Permissions::from_mode(0o600)).unwrap();
    (at("pem"), at("key"))
}
