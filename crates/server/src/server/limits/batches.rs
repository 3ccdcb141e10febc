//! Runs work once for all requests that wait for the same result.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

use tokio::sync::oneshot;
use underpass_engine::wait::lock;

use underpass_protocol::request::ClientNet;

/// Work that waits for its turn, by key.
///
/// A request joins only work that has not called [`begin`](Self::begin), which is the first thing
/// that the work does: no result is older than its request.
#[derive(Debug)]
pub(crate) struct Batches<K, T> {
    waiting: Mutex<HashMap<K, Batch<T>>>,
}

/// The requests that wait for the same work.
#[derive(Debug)]
struct Batch<T> {
    waiters: Vec<oneshot::Sender<T>>,
    /// The clients for whom the work is queued.
    clients: Vec<ClientNet>,
}

impl<K, T> Default for Batches<K, T> {
    fn default() -> Self {
        Self { waiting: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone, T> Batches<K, T> {
    /// Waits for the work of `key`. Unless it is queued for this client, `submit` is called to queue
    /// it: the work runs in the first turn of any client.
    ///
    /// # Errors
    ///
    /// The errors of `submit`.
    pub(crate) fn join<E>(
        &self,
        key: &K,
        client: ClientNet,
        submit: impl FnOnce() -> Result<(), E>,
    ) -> Result<oneshot::Receiver<T>, E> {
        let (waiter, answer) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        // The lock is held until the end, so that the work cannot begin before its submission is
        // decided.
        if let Some(batch) = waiting.get_mut(key) {
            batch.waiters.push(waiter);
            // If the queue has no place for this client, it waits for the turn of another one.
            if !batch.clients.contains(&client) && submit().is_ok() {
                batch.clients.push(client);
            }
            return Ok(answer);
        }
        submit()?;
        waiting.insert(key.clone(), Batch { waiters: vec![waiter], clients: vec![client] });
        Ok(answer)
    }

    /// Begins the work, and returns the senders of all requests that still wait for it: later
    /// requests wait for the next run. There are none if the work was begun in the turn of another
    /// client.
    pub(crate) fn begin(&self, key: &K) -> Vec<oneshot::Sender<T>> {
        let batch = lock(&self.waiting).remove(key);
        let mut waiters = batch.map(|batch| batch.waiters).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_queued_once_for_each_waiting_client() {
        let batches = Batches::<&str, u8>::default();
        let client = |last| ClientNet::of(Some(([192, 0, 2, last], 1).into()));
        let mut submitted = Vec::new();
        let mut join = |last: u8, is_full: bool| {
            batches.join(&"key", client(last), || {
                submitted.push(last);
                if is_full { Err(()) } else { Ok(()) }
            })
        };
        assert!(join(1, true).is_err());
        let waiting = [(1, false), (1, false), (2, false), (2, false), (3, true)];
        let mut answers: Vec<_> =
            waiting.map(|(last, is_full)| join(last, is_full).unwrap()).into();
        assert_eq!(submitted, [1, 1, 2, 3]);
        answer_all(batches.begin(&"key"), &7);
        assert!(answers.iter_mut().all(|answer| answer.try_recv() == Ok(7)));
        assert!(batches.begin(&"key").is_empty(), "it was done in the other line");
    }
}
