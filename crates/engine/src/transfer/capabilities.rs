//! What this kernel certainly lacks, learned from transfers and kept by the caller.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::mechanisms::mechanism::Mechanism;

/// Mechanisms that this kernel does not have at all.
///
/// Only `ENOSYS` is certain enough to be remembered; every other refusal concerns two particular
/// ends. Share one value among the transfers of a process; create a new one to start afresh.
#[derive(Debug, Default)]
pub struct Capabilities {
    /// One bit for each mechanism, at its place in [`Mechanism::ALL`].
    missing: AtomicU8,
}

impl Capabilities {
    /// Creates a value in which nothing is known to be missing.
    #[must_use]
    pub const fn new() -> Self {
        Self { missing: AtomicU8::new(0) }
    }

    /// Returns whether a transfer has found that the kernel does not know this mechanism.
    #[must_use]
    pub fn lacks(&self, mechanism: Mechanism) -> bool {
        self.missing.load(Ordering::Relaxed) & bit(mechanism) != 0
    }

    /// Remembers that the kernel does not know this mechanism.
    pub fn set_missing(&self, mechanism: Mechanism) {
        self.missing.fetch_or(bit(mechanism), Ordering::Relaxed);
    }
}

const fn bit(mechanism: Mechanism) -> u8 {
    1 << mechanism as u8
}
