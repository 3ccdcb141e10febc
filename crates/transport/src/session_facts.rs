//! The properties of a TLS session.

use rustix::io::Errno;

/// The properties of a TLS session.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// The version, `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// The suite, such as `TLS_AES_128_GCM_SHA256`.
    pub suite: &'static str,
    /// Whether it resumes an earlier session.
    pub is_resumed: bool,
    /// What encrypts the records.
    pub encrypted_by: EncryptedBy,
}

/// What encrypts the records of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncryptedBy {
    /// The kernel.
    Kernel,
    /// This process, with the reason.
    UserSpace(KernelTlsObstacle),
}

/// The reason why the kernel does not encrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelTlsObstacle {
    /// The configuration disables it.
    Unwanted,
    /// The kernel has no TLS: `TCP_ULP` fails with `ENOENT`.
    NoModule,
    /// The kernel does not support the cipher suite.
    Suite,
    /// The kernel does not support this version of TLS.
    Version,
    /// Anything else, such as a seccomp filter.
    Refused(Errno),
}

impl KernelTlsObstacle {
    /// Returns the name for labels and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unwanted => "unwanted",
            Self::NoModule => "no_module",
            Self::Suite => "suite",
            Self::Version => "version",
            Self::Refused(_) => "refused",
        }
    }
}

/// The socket error for a server that ended the connection because it requires a client
/// certificate: in TLS 1.3 the alert arrives after the handshake (RFC 8446 6.2).
pub const CERTIFICATE_REQUIRED: Errno = Errno::NOKEY;
