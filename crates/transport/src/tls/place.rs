//! Whether the kernel is to encrypt, decided before the first byte of data.

use rustix::io::Errno;
use underpass_engine::ktls::{self, Cipher, Support, Version};

/// Who encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The kernel.
    Kernel,
    /// This process, and why.
    UserSpace(Why),
}

/// Why the kernel does not encrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was told not to.
    Unwanted,
    /// It has no TLS: `TCP_ULP` says `ENOENT`.
    NoModule,
    /// It does not know the cipher suite.
    Suite,
    /// It does not know this version of TLS.
    Version,
    /// Anything else, such as a filter of system calls.
    Refused(Errno),
}

impl Why {
    /// Returns a word for labels and JSON.
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

/// What the kernel can do, and what else is wanted of it.
#[derive(Clone, Debug)]
pub(super) struct KernelOffer {
    /// Nothing if the kernel is not wanted.
    support: Option<Support>,
    /// Whether a network card may read the pages of files themselves.
    pub(super) zero_copy: bool,
}

impl KernelOffer {
    /// Asks the kernel, if it is wanted.
    pub(super) fn new(kernel: bool) -> Self {
        let ask = || match ktls::probe() {
            Ok(support) => support,
            Err(error) => Support::none(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        };
        Self { support: kernel.then(ask), zero_copy: false }
    }

    /// Of a kernel that says this of itself.
    #[cfg(test)]
    pub(super) fn of(support: Option<Support>) -> Self {
        Self { support, zero_copy: false }
    }

    /// Returns why it cannot be the kernel, as far as it is known before a handshake.
    pub(super) fn obstacle(&self) -> Option<Why> {
        match self.support.as_ref().map(|support| support.module) {
            None => Some(Why::Unwanted),
            Some(Ok(())) => None,
            Some(Err(error)) => Some(refused(error)),
        }
    }

    /// Returns why it cannot be the kernel for what was agreed on.
    pub(super) fn obstacle_to(&self, kind: Option<(Version, Cipher)>) -> Option<Why> {
        let Some(support) = &self.support else { return Some(Why::Unwanted) };
        let Some((version, cipher)) = kind else { return Some(Why::Suite) };
        if support.supports(version, cipher).is_ok() {
            None
        } else if Cipher::ALL.iter().any(|&other| support.supports(version, other).is_ok()) {
            Some(Why::Suite)
        } else {
            Some(Why::Version)
        }
    }

    pub(super) fn can_change_keys(&self) -> bool {
        self.support.as_ref().is_some_and(Support::can_change_keys)
    }

    /// Returns whether the kernel can do this, so that it should be agreed on.
    pub(super) fn prefers(&self, version: Version, cipher: Cipher) -> bool {
        self.support.as_ref().is_some_and(|support| support.supports(version, cipher).is_ok())
    }
}

/// Returns why a connection cannot be given to the kernel.
pub(super) fn refused(error: Errno) -> Why {
    if error == Errno::NOENT { Why::NoModule } else { Why::Refused(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_decided_by_what_the_kernel_can_do() {
        let kind = (Version::Tls13, Cipher::Aes256Gcm);
        assert_eq!(KernelOffer::of(None).obstacle(), Some(Why::Unwanted));
        let none = KernelOffer::of(Some(Support::none(Errno::NOENT)));
        assert_eq!(none.obstacle(), Some(Why::NoModule));
        let filtered = KernelOffer::of(Some(Support::none(Errno::PERM)));
        assert_eq!(filtered.obstacle(), Some(Why::Refused(Errno::PERM)));
        let mut support = Support { module: Ok(()), ..Support::none(Errno::INVAL) };
        assert_eq!(KernelOffer::of(Some(support.clone())).obstacle(), None);
        assert_eq!(
            KernelOffer::of(Some(support.clone())).obstacle_to(Some(kind)),
            Some(Why::Version)
        );
        support.suites[0][0] = Ok(());
        assert_eq!(
            KernelOffer::of(Some(support.clone())).obstacle_to(Some(kind)),
            Some(Why::Suite)
        );
        support.suites[0][1] = Ok(());
        assert_eq!(KernelOffer::of(Some(support.clone())).obstacle_to(Some(kind)), None);
        assert_eq!(KernelOffer::of(Some(support)).obstacle_to(None), Some(Why::Suite));
    }
}
