//! Runs work once for all requests that wait for the same result.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

use tokio::sync::oneshot;
use underpass_engine::wait::lock;

/// Work that waits for its turn, by key.
///
/// A request joins only work that has not called [`begin`](Self::begin). Where a result must not be
/// older than the request, that is the first thing the work does; where it cannot grow old, as that
/// of one version of a file, it is the last.
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
    /// Waits for the work of `key`; if none is waiting yet, `submit` is called to submit it.
    ///
    /// # Errors
    ///
    /// The errors of `submit`.
    pub(crate) fn join<E>(
        &self,
        key: &K,
        submit: impl FnOnce() -> Result<(), E>,
    ) -> Result<oneshot::Receiver<T>, E> {
        let (waiter, answer) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        if let Some(waiters) = waiting.get_mut(key) {
            waiters.push(waiter);
            return Ok(answer);
        }
        waiting.insert(key.clone(), vec![waiter]);
        // The lock is held meanwhile: the work cannot begin before its submission is decided.
        let submitted = submit();
        if submitted.is_err() {
            waiting.remove(key);
        }
        submitted.map(|()| answer)
    }

    /// Returns whether a request still waits for the work of `key`; forgets the work otherwise.
    pub(crate) fn is_wanted(&self, key: &K) -> bool {
        let mut waiting = lock(&self.waiting);
        let is_wanted =
            waiting.get(key).is_some_and(|all| all.iter().any(|waiter| !waiter.is_closed()));
        if !is_wanted {
            waiting.remove(key);
        }
        is_wanted
    }

    /// Returns the senders of all that wait; later requests wait for the next run. It includes
    /// every request that has not gone away.
    pub(crate) fn begin(&self, key: &K) -> Vec<oneshot::Sender<T>> {
        let mut waiters = lock(&self.waiting).remove(key).unwrap_or_default();
        waiters.retain(|waiter| !waiter.is_closed());
        waiters
    }
}

/// Sends the same result to all that wait.
pub(crate) fn answer_all<T: Clone>(waiters: Vec<oneshot::Sender<T>>, outcome: &T) {
    for waiter in waiters {
        // The receiver may have gone away.
        let _ = waiter.send(outcome.clone());
    }
}
