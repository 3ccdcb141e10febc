//! Decides whether the kernel encrypts, before the first byte of data.

use rustix::io::Errno;
use underpass_engine::errno;
use underpass_engine::ktls::{self, Cipher, Support, TlsVersion};

use crate::session_facts::KernelTlsObstacle;

/// The capabilities of the kernel, and the options for them.
#[derive(Clone, Debug)]
pub(super) struct KernelOffer {
    /// `None` if the kernel must not encrypt.
    support: Option<Support>,
    /// Whether a network card may read the pages of files directly.
    pub(super) zero_copy: bool,
}

impl KernelOffer {
    /// Probes the kernel, if it may encrypt.
    pub(super) fn new(kernel: bool) -> Self {
        let ask = || match ktls::probe() {
            Ok(support) => support,
            Err(error) => Support::none(errno::of(error)),
        };
        Self { support: kernel.then(ask), zero_copy: false }
    }

    /// Creates an offer of these capabilities.
    #[cfg(test)]
    pub(super) fn of(support: Option<Support>) -> Self {
        Self { support, zero_copy: false }
    }

    /// Returns why the kernel cannot encrypt, as far as known before a handshake.
    pub(super) fn obstacle(&self) -> Option<KernelTlsObstacle> {
        match self.support.as_ref().map(|support| support.module) {
            None => Some(KernelTlsObstacle::Unwanted),
            Some(Ok(())) => None,
            Some(Err(error)) => Some(refused(error)),
        }
    }

    /// Returns why the kernel cannot encrypt with the negotiated version and cipher.
    pub(super) fn obstacle_to(
        &self,
        kind: Option<(TlsVersion, Cipher)>,
    ) -> Option<KernelTlsObstacle> {
        let Some(support) = &self.support else { return Some(KernelTlsObstacle::Unwanted) };
        let Some((version, cipher)) = kind else { return Some(KernelTlsObstacle::Suite) };
        if support.supports(version, cipher).is_ok() {
            None
        } else if Cipher::ALL.iter().any(|&other| support.supports(version, other).is_ok()) {
            Some(KernelTlsObstacle::Suite)
        } else {
            Some(KernelTlsObstacle::Version)
        }
    }

    pub(super) fn can_change_keys(&self) -> bool {
        self.support.as_ref().is_some_and(Support::can_change_keys)
    }

    /// Returns whether the kernel supports this combination, so that it should be preferred.
    pub(super) fn prefers(&self, version: TlsVersion, cipher: Cipher) -> bool {
        self.support.as_ref().is_some_and(|support| support.supports(version, cipher).is_ok())
    }
}

/// Returns why a connection cannot be given to the kernel.
pub(super) fn refused(error: Errno) -> KernelTlsObstacle {
    if error == Errno::NOENT {
        KernelTlsObstacle::NoModule
    } else {
        KernelTlsObstacle::Refused(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_support_decides_where_tls_runs() {
        let kind = (TlsVersion::Tls13, Cipher::Aes256Gcm);
        assert_eq!(KernelOffer::of(None).obstacle(), Some(KernelTlsObstacle::Unwanted));
        let none = KernelOffer::of(Some(Support::none(Errno::NOENT)));
        assert_eq!(none.obstacle(), Some(KernelTlsObstacle::NoModule));
        let filtered = KernelOffer::of(Some(Support::none(Errno::PERM)));
        assert_eq!(filtered.obstacle(), Some(KernelTlsObstacle::Refused(Errno::PERM)));
        let mut support = Support { module: Ok(()), ..Support::none(Errno::INVAL) };
        assert_eq!(KernelOffer::of(Some(support.clone())).obstacle(), None);
        assert_eq!(
            KernelOffer::of(Some(support.clone())).obstacle_to(Some(kind)),
            Some(KernelTlsObstacle::Version)
        );
        support.suites[0][0] = Ok(());
        assert_eq!(
            KernelOffer::of(Some(support.clone())).obstacle_to(Some(kind)),
            Some(KernelTlsObstacle::Suite)
        );
        support.suites[0][1] = Ok(());
        assert_eq!(KernelOffer::of(Some(support.clone())).obstacle_to(Some(kind)), None);
        assert_eq!(
            KernelOffer::of(Some(support)).obstacle_to(None),
            Some(KernelTlsObstacle::Suite)
        );
    }
}
