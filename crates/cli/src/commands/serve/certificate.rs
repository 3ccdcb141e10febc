//! The certificate of the server: read from files, and again on SIGHUP, or created at the start.

use std::path::{Path, PathBuf};

use underpass_engine::{Mechanism, Policy};
use underpass_server::server::Credentials;
use underpass_transport::tls::{Acceptor, Identity, Pin, TlsError};

use super::args::{ServeArgs, TlsArgs};
use crate::failure::{Failure, Result};
use crate::output;

/// The certificate of the server, and its source.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    credentials: Credentials,
    source: Source,
    /// The reason why clients may refuse it.
    warning: Option<String>,
}

/// The source of a certificate.
#[derive(Clone, Debug)]
enum Source {
    /// PEM files, which may be renewed while the server runs.
    Files { certificates: PathBuf, key: PathBuf },
    /// A certificate that this process has created.
    SelfSigned(SelfSigned),
}

/// The data by which clients can verify a self-signed certificate.
#[derive(Clone, Debug)]
pub(crate) struct SelfSigned {
    /// SHA-256 of the certificate, as browsers show it.
    pub(crate) fingerprint: String,
    /// SHA-256 of the public key, in the form that curl and `underpass get` accept.
    pub(crate) pin: Pin,
}

impl Certificate {
    /// Returns the certificate that these arguments request; `None` if they request none.
    pub(crate) fn of(args: &ServeArgs) -> Result<Option<Self>> {
        let TlsArgs { tls_cert, tls_key, tls, redirect_http, tls_zero_copy } = &args.tls;
        let (identity, files) = match (tls, tls_cert, tls_key) {
            (None, Some(certificates), Some(key)) => {
                let identity = Identity::load(certificates, key)?;
                (identity, Some((absolute(certificates), absolute(key))))
            }
            (Some(_), None, None) => {
                (Identity::self_signed(&Identity::names_of_this_host())?, None)
            }
            (None, None, None) if redirect_http.is_some() => {
                return Err(needs("--redirect-http", "there is no HTTPS to redirect to"));
            }
            (None, None, None) if *tls_zero_copy => {
                return Err(needs("--tls-zero-copy", "there is no HTTPS"));
            }
            (None, None, None) => return Ok(None),
            (Some(_), ..) => {
                let why = "--tls self makes a certificate: leave out --tls-cert and --tls-key";
                return Err(Failure::Usage(why.to_owned()));
            }
            (None, Some(_), None) => return Err(lacks("--tls-cert", "--tls-key", "its key")),
            (None, None, Some(_)) => return Err(lacks("--tls-key", "--tls-cert", "a certificate")),
        };
        let made = SelfSigned { fingerprint: identity.fingerprint(), pin: identity.pin() };
        let warning = identity.warning().map(str::to_owned);
        let in_kernel = args.engine.policy() != Policy::Require(Mechanism::ReadWrite);
        let acceptor = Acceptor::new(identity, in_kernel)?.zero_copy(*tls_zero_copy);
        let source = match files {
            Some((certificates, key)) => Source::Files { certificates, key },
            None => Source::SelfSigned(made),
        };
        Ok(Some(Self { credentials: Credentials::new(acceptor), source, warning }))
    }

    /// Returns the credentials of the server.
    pub(crate) fn credentials(&self) -> Credentials {
        self.credentials.clone()
    }

    /// Returns the data by which clients can verify it, if only this process knows them.
    pub(crate) fn made(&self) -> Option<&SelfSigned> {
        match &self.source {
            Source::SelfSigned(made) => Some(made),
            Source::Files { .. } => None,
        }
    }

    /// Returns the reason why clients may refuse it.
    pub(crate) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns the files that are read again on SIGHUP.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        match &self.source {
            Source::Files { certificates, key } => vec![certificates.clone(), key.clone()],
            Source::SelfSigned(_) => Vec::new(),
        }
    }

    /// Returns the folders from which its files are read again: those of the named paths, and
    /// those that links lead to, because renewing a certificate replaces the file.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let Source::Files { certificates, key } = &self.source else { return Vec::new() };
        let mut folders = Vec::new();
        for path in [certificates, key] {
            let real = std::fs::canonicalize(path).ok();
            for folder in
                [Some(path), real.as_ref()].into_iter().flatten().filter_map(|p| p.parent())
            {
                if !folders.iter().any(|known: &PathBuf| known == folder) {
                    folders.push(folder.to_owned());
                }
            }
        }
        folders
    }

    /// Reads the files again. If they are invalid, the old certificate stays in use, and the
    /// error is logged.
    pub(crate) fn renew(&self) {
        let Source::Files { certificates, key } = &self.source else { return };
        match Identity::load(certificates, key) {
            Ok(identity) => {
                let warning = identity.warning().map(str::to_owned);
                self.credentials.renew(&identity);
                output::note(&format!("{} is read again", certificates.display()));
                warning.iter().for_each(|warning| output::note(warning));
            }
            Err(error) => output::note(&format!("{error}; the certificate of before stays")),
        }
    }
}

/// Returns an absolute path, which names the same file after a change of folders.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn needs(option: &str, why: &str) -> Failure {
    let how = "give --tls-cert and --tls-key, or --tls self";
    Failure::Usage(format!("{option}: {why}: {how}"))
}

fn lacks(option: &str, other: &str, what: &str) -> Failure {
    Failure::Usage(format!(
        "{option} needs {other} with {what}; both may name one file. Without any, there is --tls self"
    ))
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Self {
        Self::line(error)
    }
}
