//! The identity of a server: its certificates and key.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SignatureAlgorithm};
use sha2::{Digest, Sha256};
use underpass_engine::atomic_file::open_file;

use super::super::error::{Fault, TlsError};
use super::super::suites;
use super::facts::CertificateFacts;
use super::host_names::names_of_this_host;
use crate::trust::Pin;

/// The validity of a generated certificate: browsers refuse more than 398 days.
const VALIDITY: Duration = Duration::from_secs(397 * 24 * 60 * 60);

/// How long before its creation a certificate becomes valid, because clocks differ.
const BEFORE: Duration = Duration::from_secs(24 * 60 * 60);

/// The largest accepted certificate or key file, in bytes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// A certificate chain with its private key. It is cheap to clone and shows no secret.
#[derive(Clone, Debug)]
pub struct Identity {
    key: Arc<CertifiedKey>,
    pin: Pin,
    warning: Option<String>,
}

impl Identity {
    /// Reads PEM files: the chain, the server's own certificate first, and the key (PKCS#8, PKCS#1
    /// or SEC1). Both may be in one file.
    ///
    /// # Errors
    ///
    /// See [`TlsError`]; each names the file.
    pub fn load(certificates: &Path, key: &Path) -> Result<Self, TlsError> {
        Self::load_with(certificates, key, read)
    }

    /// Does the same while the server runs, without waiting for a program that writes to a pipe.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), and for anything but regular files.
    pub fn load_again(certificates: &Path, key: &Path) -> Result<Self, TlsError> {
        Self::load_with(certificates, key, read_again)
    }

    fn load_with(
        certificates: &Path,
        key: &Path,
        read: fn(&Path) -> Result<Vec<u8>, TlsError>,
    ) -> Result<Self, TlsError> {
        let (chain, key_pem) = (read(certificates)?, read(key)?);
        let identity = Self::parse((certificates, &chain), (key, &key_pem))?;
        let warnings = identity.warning.into_iter().chain(open_to_all(key));
        let warning = warnings.reduce(|one, other| format!("{one}; {other}"));
        Ok(Self { warning, ..identity })
    }

    /// Reads the chain and the key from one PEM text, whose file is or will be called `name`.
    ///
    /// # Errors
    ///
    /// [`TlsError::Unusable`], which names the file.
    pub fn from_pem(name: &Path, pem: &[u8]) -> Result<Self, TlsError> {
        Self::parse((name, pem), (name, pem))
    }

    /// Parses the PEM of two files; each is given with its name.
    fn parse(
        (certificates, chain): (&Path, &[u8]),
        (key, pem): (&Path, &[u8]),
    ) -> Result<Self, TlsError> {
        let chain = parse_certificates(certificates, chain)?;
        let der = PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
            let fault = match error {
                _ if is_encrypted(pem) => Fault::EncryptedKey,
                PemError::NoItemsFound => Fault::NoKey,
                other => not_pem(&other),
            };
            TlsError::Unusable { path: key.to_owned(), fault }
        })?;
        Self::new(chain, der, &suites::provider(None)).map_err(|error| {
            let (path, fault) = match error {
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    (key, Fault::OtherKey { certificate: certificates.to_owned() })
                }
                Error::InvalidCertificate(error) => {
                    (certificates, Fault::BadCertificate(error.to_string()))
                }
                _ => (key, Fault::UnknownKey),
            };
            TlsError::Unusable { path: path.to_owned(), fault }
        })
    }

    /// Makes a self-signed certificate for these host names and addresses.
    ///
    /// # Errors
    ///
    /// [`TlsError::Name`] if no certificate can have one of them.
    pub fn self_signed(names: &[String]) -> Result<Self, TlsError> {
        let mut params = rcgen::CertificateParams::default();
        for name in names {
            let one = rcgen::CertificateParams::new([name.clone()]);
            let one = one.map_err(|_| TlsError::Name(name.clone()))?;
            params.subject_alt_names.extend(one.subject_alt_names);
        }
        let now = SystemTime::now();
        params.not_before = (now - BEFORE).into();
        params.not_after = (now - BEFORE + VALIDITY).into();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let title = names.first().map_or("underpass", String::as_str);
        params.distinguished_name.push(rcgen::DnType::CommonName, title);
        params.is_ca = rcgen::IsCa::ExplicitNoCa;
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        let (chain, key) = signed_by_itself(&params)?;
        Self::new(chain, key, &suites::provider(None))
            .map_err(|error| TlsError::Refused(error.to_string()))
    }

    /// Returns the names of this machine: its host name, `localhost`, and the addresses of its
    /// interfaces.
    #[must_use]
    pub fn names_of_this_host() -> Vec<String> {
        names_of_this_host()
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        provider: &CryptoProvider,
    ) -> Result<Self, Error> {
        let leaf = chain.first().ok_or(Error::NoCertificatesPresented)?;
        let public_key = ParsedCertificate::try_from(leaf)?.subject_public_key_info();
        let pin = Pin::of(&public_key);
        let warning = warning(leaf, Timestamp::now());
        let key = Arc::new(CertifiedKey::new(chain, provider.key_provider.load_private_key(key)?));
        match key.keys_match() {
            // Some keys, such as hardware keys, cannot tell.
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => (),
            Err(error) => return Err(error),
        }
        Ok(Self { key, pin, warning })
    }

    /// Returns the pin of the public key, for clients.
    #[must_use]
    pub fn pin(&self) -> Pin {
        self.pin
    }

    /// Returns a warning about a usable identity: the certificate is not valid now, or other users
    /// can read the key.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns the SHA-256 of the certificate itself, as browsers show it: `AA:BB:…`.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let bytes = self.leaf().map(Sha256::digest).unwrap_or_default();
        bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
    }

    /// Returns the server's own certificate as PEM, for a client's `--cacert`.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        let text = STANDARD.encode(self.leaf().unwrap_or_default());
        let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
        let body: String = lines.map(|line| format!("{line}\n")).collect();
        format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
    }

    /// Returns the time during which the certificate is valid; `None` if it cannot be read.
    #[must_use]
    pub fn validity(&self) -> Option<Range<SystemTime>> {
        let facts = CertificateFacts::of(self.leaf()?)?;
        Some(facts.not_before.into()..facts.not_after.into())
    }

    /// Returns whether a signature takes so long (RSA) that it should not delay other connections
    /// of the thread.
    pub(super) fn is_slow(&self) -> bool {
        self.key.key.algorithm() == SignatureAlgorithm::RSA
    }

    /// Returns whether both have the same certificates.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.key, &other.key) || self.key.cert == other.key.cert
    }

    fn leaf(&self) -> Option<&[u8]> {
        self.key.cert.first().map(|leaf| leaf.as_ref())
    }

    pub(in crate::tls) fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }
}

/// Makes a certificate and the key that signs it.
pub(super) fn signed_by_itself(
    params: &rcgen::CertificateParams,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let refused = |error: rcgen::Error| TlsError::Refused(error.to_string());
    let key = rcgen::KeyPair::generate().map_err(refused)?;
    let certificate = params.self_signed(&key).map_err(refused)?;
    let der = PrivatePkcs8KeyDer::from(key.serialize_der());
    Ok((vec![certificate.into()], der.into()))
}

/// Returns the certificates in a PEM file, at least one.
pub(in crate::tls) fn read_certificates(
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    parse_certificates(path, &read(path)?)
}

/// Returns the certificates in a PEM text, at least one.
fn parse_certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unusable = |fault| TlsError::Unusable { path: path.to_owned(), fault };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error: PemError| unusable(not_pem(&error)))?;
    if chain.is_empty() { Err(unusable(Fault::NoCertificate)) } else { Ok(chain) }
}

/// Returns the fault of a file that is not PEM; the library would print lines as lists of numbers.
/// A line that is not a label is not shown: it may be a private key without line breaks.
fn not_pem(error: &PemError) -> Fault {
    let is_label = |name: &str| {
        name.len() <= MAX_LABEL && name.bytes().all(|b| b.is_ascii_uppercase() || b == b' ')
    };
    let label = |text: &[u8]| {
        let text = str::from_utf8(text).ok()?.trim_end().trim_start_matches("-----BEGIN ");
        is_label(text).then(|| text.to_owned())
    };
    let reason = match error {
        PemError::MissingSectionEnd { end_marker } => label(end_marker)
            .map(|label| format!("`-----END {label}-----` is missing, so it is not complete")),
        PemError::IllegalSectionStart { line } => {
            label(line).map(|label| format!("`-----BEGIN {label}` begins no section"))
        }
        other => Some(other.to_string()),
    };
    let no_label = "a line with `-----BEGIN` has more than a label, or none";
    Fault::NotPem(reason.unwrap_or_else(|| no_label.to_owned()))
}

/// The longest section label that is shown, in bytes.
const MAX_LABEL: usize = 40;

/// Reads a file, or a pipe such as `<(...)` of a shell, up to [`MAX_BYTES`].
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    read_to_end(path, File::open(path))
}

/// Reads a regular file, up to [`MAX_BYTES`].
fn read_again(path: &Path) -> Result<Vec<u8>, TlsError> {
    let opened = open_file(path);
    if opened.as_ref().is_ok_and(|file| file.metadata().is_ok_and(|found| !found.is_file())) {
        return Err(TlsError::Unusable { path: path.to_owned(), fault: Fault::NoFile });
    }
    read_to_end(path, opened)
}

fn read_to_end(path: &Path, opened: io::Result<File>) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: PathBuf::from(path), source };
    let mut bytes = Vec::new();
    opened.map_err(unreadable)?.take(MAX_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// Returns whether a private key in PEM is encrypted, in the PKCS#8 or the traditional format.
fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----")
        || text.contains("Proc-Type: 4,ENCRYPTED")
}

/// Returns a warning if other users can read a key.
fn open_to_all(key: &Path) -> Option<String> {
    const READ_BY_OTHERS: u32 = 0o004;
    let mode = std::fs::metadata(key).ok()?.permissions().mode();
    let path = key.display();
    (mode & READ_BY_OTHERS != 0)
        .then(|| format!("every user of this machine can read {path}: chmod 600 {path}"))
}

/// Returns a warning if the certificate is not valid now.
fn warning(certificate: &[u8], now: Timestamp) -> Option<String> {
    let CertificateFacts { not_before, not_after, .. } = CertificateFacts::of(certificate)?;
    let day = |moment: Timestamp| moment.strftime("%Y-%m-%d");
    if not_after < now {
        Some(format!("the certificate expired on {}: clients will refuse it", day(not_after)))
    } else if not_before > now {
        let day = day(not_before);
        Some(format!("the certificate is not valid before {day}: clients will refuse it"))
    } else {
        None
    }
}
