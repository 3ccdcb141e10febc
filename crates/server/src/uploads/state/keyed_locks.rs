//! Locks for single files or file systems, so that a slow one does not block requests for another.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use underpass_engine::wait::lock;

/// Locks by key, which exist while they are used.
#[derive(Debug)]
pub(crate) struct KeyedLocks<K>(Mutex<HashMap<K, Arc<Mutex<()>>>>);

impl<K> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> KeyedLocks<K> {
    /// Returns the lock of a key.
    pub(crate) fn of(&self, key: K) -> Arc<Mutex<()>> {
        let mut locks = lock(&self.0);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(key).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_lock_while_that_is_used() {
        let locks = KeyedLocks::default();
        let used = [1, 2].map(|key| locks.of(key));
        let _held = lock(&used[0]);
        for key in 3..100 {
            assert!(locks.of(key).try_lock().is_ok(), "{key}");
        }
        assert!(locks.of(1).try_lock().is_err() && locks.of(2).try_lock().is_ok());
        assert_eq!(lock(&locks.0).len(), 2);
    }
}
