//! The facts about a connection over TLS.

use rustix::io::Errno;

/// The facts about a session.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// The version, `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// The suite, such as `TLS_AES_128_GCM_SHA256`.
    pub suite: &'static str,
    /// Whether it resumes an earlier session.
    pub is_resumed: bool,
    /// The place where records are encrypted.
    pub encrypted_by: EncryptedBy,
}

/// The encryptor of the records of a session.
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
    /// Anything else, such as a filter of system calls.
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

/// The error of a socket whose server has ended the connection because it requires a certificate of
/// the client: TLS 1.3 has the alert after the handshake (RFC 8446 6.2).
pub const CERTIFICATE_REQUIRED: Errno = Errno::NOKEY;
