//! Work that is done once for all who wait for the same.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Work that waits for its turn, by what it is about.
///
/// Whoever asks joins only work that has not begun: what it finds is never older than the question.
#[derive(Debug)]
pub(crate) struct Batches<K, T> {
    waiting: Mutex<HashMap<K, Vec<oneshot::Sender<T>>>>,
}

impl<K, T> Default for Batches<K, T> {
    fn default() -> Self {
        Self { waiting: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone, T> Batches<K, T> {
    /// Waits for the work about `key`; `submit` is called if nobody waits for it yet, and has it
    /// done.
    ///
    /// # Errors
    ///
    /// As `submit`.
    pub(crate) fn join<E>(
        &self,
        key: &K,
        submit: impl FnOnce() -> Result<(), E>,
    ) -> Result<oneshot::Receiver<T>, E> {
        let (asker, answer) = oneshot::channel();
        let mut waiting = self.lock();
        if let Some(askers) = waiting.get_mut(key) {
            askers.push(asker);
            return Ok(answer);
        }
        waiting.insert(key.clone(), vec![asker]);
        // Under the lock: the work cannot begin before it is decided whether it does.
        let submitted = submit();
        if submitted.is_err() {
            waiting.remove(key);
        }
        submitted.map(|()| answer)
    }

    /// Those who wait, at the moment in which the work begins: whoever asks from now on waits for
    /// the next. Nobody is left out who has not gone away.
    pub(crate) fn begin(&self, key: &K) -> Vec<oneshot::Sender<T>> {
        let mut askers = self.lock().remove(key).unwrap_or_default();
        askers.retain(|asker| !asker.is_closed());
        askers
    }

    /// Locks even if another thread has panicked: nothing is ever half-written.
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Vec<oneshot::Sender<T>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells everybody the same.
pub(crate) fn tell_all<T: Clone>(askers: Vec<oneshot::Sender<T>>, outcome: &T) {
    for asker in askers {
        // It may have gone away.
        let _ = asker.send(outcome.clone());
    }
}
