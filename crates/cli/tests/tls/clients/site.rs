//! A test certificate authority, and servers with its certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use underpass_testkit::tls::certificate;

use crate::rig::{Finished, Running, folder, has, nginx, underpass};

/// A certificate authority and its certificates.
pub struct Authority {
    pub folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let folder = folder();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        fs::write(folder.path().join("ca.pem"), made.pem()).unwrap();
        fs::write(folder.path().join("ca.key"), key.serialize_pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    /// Its own certificate, for `--cacert`.
    pub fn path(&self) -> String {
        self.folder.path().join("ca.pem").to_str().unwrap().to_owned()
    }

    /// The same as the certificate of a server on `localhost`, and its key: `openssl req -x509` makes
    /// such certificates.
    pub fn own(&self) -> (PathBuf, PathBuf) {
        (self.folder.path().join("ca.pem"), self.folder.path().join("ca.key"))
    }

    /// A certificate for this name, and its key.
    pub fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        self.issue_as(name, |_| {})
    }

    pub fn issue_as(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let number = fs::read_dir(self.folder.path()).unwrap().count();
        let at = |kind| self.folder.path().join(format!("{number}.{kind}"));
        fs::write(at("pem"), params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        fs::write(at("key"), key.serialize_pem()).unwrap();
        (at("pem"), at("key"))
    }

    /// A self-signed certificate.
    pub fn self_signed(&self) -> (PathBuf, PathBuf) {
        let (pem, key) = certificate(self.folder.path(), "own", &["localhost"]);
        (pem.into(), key.into())
    }
}

pub use underpass_testkit::{free_port, until_listening};

/// nginx, which has its files in `root` and takes others.
pub struct Nginx {
    pub stage: TempDir,
    running: Option<Running>,
}

impl Nginx {
    /// With a server for each port, certificate and words besides; nothing, which is told, if there
    /// is none.
    pub fn new(servers: &[(u16, &(PathBuf, PathBuf), &str)]) -> Option<Self> {
        if !has("nginx") {
            return None;
        }
        let stage = folder();
        let root = stage.path().join("root");
        fs::create_dir(&root).unwrap();
        let root = root.display();
        let servers: String = servers
            .iter()
            .map(|(port, (certificate, key), words)| {
                let (certificate, key) = (certificate.display(), key.display());
                format!(
                    "server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {certificate};
                     ssl_certificate_key {key}; root {root}; autoindex on; {words} }}"
                )
            })
            .collect();
        let takes = "client_max_body_size 20m; dav_methods PUT MKCOL; create_full_put_path on;";
        let config = nginx::config(stage.path(), &format!("{takes} {servers}"));
        let running = Running::start(nginx::command("nginx", &config));
        Some(Self { stage, running: Some(running) })
    }

    pub fn root(&self) -> PathBuf {
        self.stage.path().join("root")
    }
}

impl Drop for Nginx {
    /// Ends its workers, too.
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.signal("TERM");
            running.finish();
        }
    }
}

/// The program with a folder as its home, and nothing else in its environment.
pub fn at_home(home: &Path, args: &[&str]) -> Command {
    let mut command = underpass();
    command.args(args).current_dir(home).env("HOME", home);
    command.env("XDG_STATE_HOME", home.join("state"));
    for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command
}

/// The same, run to its end.
pub fn run(home: &Path, args: &[&str]) -> Finished {
    Running::start(at_home(home, args)).finish()
}
