//! Errors of certificates, keys and handshakes, each with a one-line message.

use std::fmt;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};
use underpass_engine::hint::{Hint, Hinted, Plain};

use crate::trust::Pin;

/// The reason why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read: {}", .path.display(), Plain(.source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file has the wrong contents.
    #[error("{} {fault}", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: Fault,
    },
    /// The system has no CA certificates.
    #[error(
        "this system has no CA certificates: install its package \
         ca-certificates, or name a file with them"
    )]
    NoAuthorities,
    /// No certificate can have this name.
    #[error("a certificate cannot be for the name `{0}`")]
    Name(String),
    /// rustls or rcgen returned an error.
    #[error("{0}")]
    Refused(String),
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It is not a regular file, but is read while the server runs.
    #[error("is not a regular file: others are read only at the start of the server")]
    NoFile,
    /// It is not PEM.
    #[error("is not PEM: {0}")]
    NotPem(String),
    /// There is no certificate in it.
    #[error("has no certificate in it (PEM, `-----BEGIN CERTIFICATE-----`)")]
    NoCertificate,
    /// There is no private key in it.
    #[error("has no private key in it (PEM, `-----BEGIN PRIVATE KEY-----`)")]
    NoKey,
    /// The private key is encrypted.
    #[error(
        "has an encrypted private key in it: decrypt it, as by `openssl pkey -in FILE -out NEW`, \
         and let no other user read the new file"
    )]
    EncryptedKey,
    /// A certificate cannot be read.
    #[error("has a certificate in it that cannot be used: {0}")]
    BadCertificate(String),
    /// The key is of an unknown kind.
    #[error(
        "has a private key in it that cannot be used: RSA of 2048 to 8192 bits, P-256, P-384, \
         P-521 and Ed25519 can"
    )]
    UnknownKey,
    /// The key does not belong to the certificate.
    #[error(
        "is not the key of the certificate in {} (the first one there has to be the server's)",
        .certificate.display()
    )]
    OtherKey {
        /// The file of the certificate.
        certificate: PathBuf,
    },
}

/// The reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The first bytes are not TLS, perhaps a plain HTTP request; nothing was consumed from the
    /// socket.
    #[error("the peer does not speak TLS")]
    PlainHttp,
    /// A certificate authority has checked the answer to its challenge, its only reason to connect.
    #[error("the connection was only an ACME challenge")]
    Challenge,
    /// The peer disconnected before the handshake was done.
    #[error("the peer closed the connection in the middle of the TLS handshake")]
    Closed,
    /// The client does not trust the certificate.
    #[error(fmt = fmt_untrusted)]
    Certificate {
        /// The reason.
        error: CertificateError,
        /// Whether its issuer is its own subject.
        is_self_signed: bool,
    },
    /// The server's public key is not one of the pinned keys.
    #[error("the server's public key is not a pinned one, but {key}")]
    NotPinned {
        /// The server's key.
        key: Pin,
    },
    /// No certificate can have this host name.
    #[error("`{0}` is neither a name nor an address that TLS can check")]
    Name(String),
    /// Any other TLS error.
    #[error(fmt = fmt_reason)]
    Tls(Error),
    /// The socket failed.
    #[error("the TLS handshake failed: {}", Plain(.0))]
    Io(#[source] io::Error),
}

/// Errors of the verifier that rustls has no variant for.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum VerifyError {
    /// The key is not one of the pinned keys.
    #[error("its public key {0} is not pinned")]
    NotPinned(Pin),
    /// The certificate is self-signed.
    #[error("it is self-signed")]
    SelfSigned,
}

impl From<Error> for HandshakeError {
    fn from(error: Error) -> Self {
        let Error::InvalidCertificate(error) = error else { return Self::Tls(error) };
        if let CertificateError::Other(other) = &error {
            match other.0.downcast_ref() {
                Some(VerifyError::NotPinned(key)) => return Self::NotPinned { key: *key },
                Some(VerifyError::SelfSigned) => {
                    let error = CertificateError::UnknownIssuer;
                    return Self::Certificate { error, is_self_signed: true };
                }
                None => (),
            }
        }
        Self::Certificate { error, is_self_signed: false }
    }
}

impl HandshakeError {
    /// Returns whether the peer apparently does not speak TLS at all.
    pub(crate) fn is_no_tls(&self) -> bool {
        matches!(self, Self::PlainHttp | Self::Tls(Error::InvalidMessage(_)))
    }
}

impl HandshakeError {
    /// Returns whether trusting the certificate authority would make the certificate valid.
    #[must_use]
    pub fn is_untrusted(&self) -> bool {
        matches!(self, Self::Certificate { error: CertificateError::UnknownIssuer, .. })
    }
}

impl Hinted for HandshakeError {
    fn hint(&self) -> Option<Hint> {
        Some(Hint::new(match self {
            error if error.is_no_tls() => "is that the port for it?",
            Self::Certificate { is_self_signed: true, .. } => {
                "--cacert trusts the certificate, --pin its key"
            }
            error if error.is_untrusted() => "--cacert FILE trusts the authorities in that file",
            Self::NotPinned { .. } => {
                "the server has a new key, or this is another server: ask its administrator"
            }
            _ => return None,
        }))
    }
}

/// Writes why a certificate is not trusted.
fn fmt_untrusted(
    error: &CertificateError,
    is_self_signed: &bool,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    match error {
        _ if *is_self_signed => {
            f.write_str("the server's certificate is self-signed and not trusted")
        }
        CertificateError::ExpiredContext { not_after, .. } => {
            write!(f, "the server's certificate expired on {}", day(*not_after))
        }
        CertificateError::NotValidYetContext { not_before, time } => write!(
            f,
            "the server's certificate is not valid before {}, and this machine's clock says {}",
            day(*not_before),
            day(*time)
        ),
        CertificateError::UnknownIssuer => f.write_str(
            "the server's certificate was issued by a certificate authority that is not trusted here",
        ),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<_> = presented.iter().map(|name| plain_name(name)).collect();
            write!(f, "the server's certificate is not for {}, but for ", expected.to_str())?;
            match names.as_slice() {
                [] => f.write_str("no name at all"),
                names => f.write_str(&names.join(", ")),
            }
        }
        // Not one in a chain: the verifier reports that as an unknown issuer.
        CertificateError::BadSignature => {
            f.write_str("the server does not have the private key of its certificate")
        }
        CertificateError::Revoked => f.write_str("the server's certificate has been revoked"),
        CertificateError::BadEncoding => {
            f.write_str("the server's certificate cannot be read: it is not well formed")
        }
        other => {
            let text = Error::InvalidCertificate(other.clone()).to_string();
            let reason = text.strip_prefix("invalid peer certificate: ").unwrap_or(&text);
            write!(f, "the server's certificate cannot be trusted: {reason}")
        }
    }
}

/// Removes the variant from `DnsName("a")` and `IpAddress(127.0.0.1)`.
fn plain_name(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, inner)| inner.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

/// Writes why a handshake failed.
fn fmt_reason(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use AlertDescription as Alert;
    match error {
        Error::AlertReceived(Alert::HandshakeFailure) => f.write_str(
            "the peer refuses the TLS handshake: it has no cipher suite in common with us, or \
             requires a client certificate, which is not supported",
        ),
        Error::AlertReceived(Alert::ProtocolVersion) => f.write_str(
            "the peer refuses the TLS handshake: it supports neither TLS 1.2 nor TLS 1.3",
        ),
        Error::AlertReceived(
            Alert::UnknownCA | Alert::BadCertificate | Alert::CertificateUnknown,
        ) => f.write_str("the peer rejected our certificate as untrusted"),
        Error::AlertReceived(Alert::CertificateExpired) => {
            f.write_str("the peer says that our certificate has expired, or is not valid yet")
        }
        Error::AlertReceived(Alert::UnrecognisedName) => {
            f.write_str("the server has no certificate for this name")
        }
        Error::AlertReceived(Alert::CertificateRequired) => {
            f.write_str("the server requires a client certificate, which is not supported")
        }
        Error::AlertReceived(alert) => {
            write!(f, "the peer refuses the TLS handshake: {alert:?}")
        }
        Error::InvalidMessage(_) => {
            f.write_str("the peer does not speak TLS: what it sends is not a TLS record")
        }
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::SupportedVersionsExtensionRequired,
        ) => f.write_str("the peer supports neither TLS 1.2 nor TLS 1.3"),
        Error::PeerIncompatible(_) => write!(f, "no TLS in common with the peer: {error}"),
        Error::NoApplicationProtocol => f.write_str("the peer does not offer HTTP/1.1 (ALPN)"),
        other => write!(f, "the TLS handshake failed: {other}"),
    }
}

/// Formats a day, such as `2026-11-21`.
fn day(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let moment = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    moment.strftime("%Y-%m-%d").to_string()
}
