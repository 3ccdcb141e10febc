//! The lock for names of files. Sites that may serve the same files share it.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use underpass_engine::wait::unpoison;

/// Locked by any change to the name of a file: shared with other changes, or exclusively if the
/// change depends on the file that has the name now.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamesLock(Arc<RwLock<()>>);

impl NamesLock {
    /// Keeps all other requests from changing names if `is_alone`, as between the last check of a
    /// conditional request and its change; otherwise only those that have to be alone.
    pub(crate) fn hold(&self, is_alone: bool) -> NamesGuard<'_> {
        if is_alone {
            NamesGuard::Alone(unpoison(self.0.write()))
        } else {
            NamesGuard::Together(unpoison(self.0.read()))
        }
    }

    /// Returns whether this is the same lock.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Holds the names until it is dropped.
pub(crate) enum NamesGuard<'s> {
    /// No other request may give or take names.
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'s, ()>),
    /// Other changes that need not be alone may do so, too.
    Together(#[expect(dead_code, reason = "held")] RwLockReadGuard<'s, ()>),
}
