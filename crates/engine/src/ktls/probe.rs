//! The TLS features that this kernel supports, found by trying them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use rustix::io::Errno;

use super::{Cipher, KeyDirection, RecordKeys, TlsVersion, attach, install};

/// The TLS features that this kernel supports, as reported by [`probe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    /// Whether there is a TLS module; `ENOENT` if not, `EPERM` or `ENOSYS` from a seccomp filter.
    pub module: Result<(), Errno>,
    /// For each version and cipher, in the order of [`TlsVersion::ALL`] and [`Cipher::ALL`]:
    /// whether the kernel accepts its keys in both directions.
    pub suites: [[Result<(), Errno>; Cipher::ALL.len()]; TlsVersion::ALL.len()],
    /// Whether a TLS 1.3 connection can be given new keys: Linux 6.14.
    pub key_change: Result<(), Errno>,
}

impl Support {
    /// Returns the features of a kernel without TLS, which fails with `errno`.
    #[must_use]
    pub const fn none(errno: Errno) -> Self {
        Self {
            module: Err(errno),
            suites: [[Err(errno); Cipher::ALL.len()]; TlsVersion::ALL.len()],
            key_change: Err(errno),
        }
    }

    /// Checks that the kernel supports connections of this version and cipher.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn supports(&self, version: TlsVersion, cipher: Cipher) -> Result<(), Errno> {
        self.suites[place(&TlsVersion::ALL, version)][place(&Cipher::ALL, cipher)]
    }

    /// Returns whether a TLS 1.3 connection can be given new keys.
    #[must_use]
    pub const fn can_change_keys(&self) -> bool {
        self.key_change.is_ok()
    }
}

/// Returns the index of a value in the list of all values of its type.
fn place<T: PartialEq>(all: &[T], what: T) -> usize {
    all.iter().position(|candidate| *candidate == what).unwrap_or(0)
}

/// Probes this kernel's TLS support with connections over loopback, which takes some milliseconds.
/// The caller should keep the result.
///
/// # Errors
///
/// If no connection over loopback can be made for the probe.
pub fn probe() -> io::Result<Support> {
    let pair = loopback_pair()?;
    if let Err(errno) = attach(&pair.0) {
        return Ok(Support::none(errno));
    }
    let mut support = Support { module: Ok(()), ..Support::none(Errno::BUSY) };
    for (version, answers) in TlsVersion::ALL.into_iter().zip(&mut support.suites) {
        for (cipher, answer) in Cipher::ALL.into_iter().zip(answers) {
            let key = [1; 32];
            let keys =
                RecordKeys { version, cipher, key: &key[..cipher.key_len()], iv: &IV, sequence: 0 };
            let pair = loopback_pair()?;
            *answer = try_both_ways(&pair, &keys);
            if version == TlsVersion::Tls13 && answer.is_ok() && support.key_change.is_err() {
                let other = [2; 32];
                let keys = RecordKeys { key: &other[..cipher.key_len()], ..keys };
                support.key_change = install(&pair.0, KeyDirection::Send, &keys)
                    .and_then(|()| install(&pair.1, KeyDirection::Receive, &keys));
            }
        }
    }
    Ok(support)
}

/// Installs the same keys for sending at one end and for receiving at the other.
fn try_both_ways(ends: &(TcpStream, TcpStream), keys: &RecordKeys<'_>) -> Result<(), Errno> {
    attach(&ends.0)?;
    attach(&ends.1)?;
    install(&ends.0, KeyDirection::Send, keys)?;
    install(&ends.1, KeyDirection::Receive, keys)
}

/// Returns the two ends of a connection within this process.
///
/// # Errors
///
/// As socket(2), bind(2), connect(2) and accept(2).
pub fn loopback_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = listener.or_else(|_| TcpListener::bind((Ipv6Addr::LOCALHOST, 0)))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let address: SocketAddr = near.local_addr()?;
    // Another process on this machine could have connected first.
    for _ in 0..MAX_OTHERS {
        let (far, peer) = listener.accept()?;
        if peer == address {
            return Ok((near, far));
        }
    }
    Err(Errno::CONNREFUSED.into())
}

/// The maximum number of foreign connections that are ignored.
const MAX_OTHERS: usize = 16;

const IV: [u8; 12] = [3; 12];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn support_is_stored_by_version_and_cipher() {
        let mut support = Support::none(Errno::NOENT);
        support.suites[0][1] = Ok(());
        let supported: Vec<_> = TlsVersion::ALL
            .into_iter()
            .flat_map(|version| Cipher::ALL.map(|cipher| (version, cipher)))
            .filter(|&(version, cipher)| support.supports(version, cipher).is_ok())
            .collect();
        assert_eq!(supported, [(TlsVersion::Tls13, Cipher::Aes256Gcm)]);
    }

    #[test]
    fn two_probes_of_one_kernel_agree() {
        let support = probe().unwrap();
        assert_eq!(probe().unwrap(), support);
        let any = support.suites.iter().flatten().any(Result::is_ok);
        assert!(support.module.is_ok() || !any, "{support:?}");
    }
}
