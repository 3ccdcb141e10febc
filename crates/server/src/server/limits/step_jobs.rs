//! Runs work of many steps once for all clients that wait for it, in the turns of each of them.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Mutex;

use tokio::sync::oneshot;
use underpass_engine::wait::lock;

use underpass_protocol::request::ClientNet;

/// Work by key. Each waiting client has a step of it queued, and the first turn of any of them runs
/// the next step.
pub(crate) struct StepJobs<K, W, T> {
    jobs: Mutex<HashMap<K, StepJob<W, T>>>,
}

struct StepJob<W, T> {
    /// The work so far; `None` while a thread makes a step.
    work: Option<W>,
    waiters: Vec<(ClientNet, oneshot::Sender<T>)>,
    /// The clients for whom a step is queued.
    queued: Vec<ClientNet>,
}

impl<K, W, T> Default for StepJobs<K, W, T> {
    fn default() -> Self {
        Self { jobs: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone, W, T> StepJobs<K, W, T> {
    /// Waits for the work of `key`, which begins as `work`. Unless a step is queued for this client,
    /// `submit` is called to queue one.
    ///
    /// # Errors
    ///
    /// The errors of `submit`, if no other client waits for the work.
    pub(crate) fn join<E>(
        &self,
        key: &K,
        client: ClientNet,
        work: W,
        submit: impl FnOnce() -> Result<(), E>,
    ) -> Result<oneshot::Receiver<T>, E> {
        let (waiter, answer) = oneshot::channel();
        let mut jobs = lock(&self.jobs);
        if let Some(job) = jobs.get_mut(key) {
            job.waiters.push((client, waiter));
            // If the queue has no place for this client, it waits for the turns of others.
            if !job.queued.contains(&client) && submit().is_ok() {
                job.queued.push(client);
            }
            return Ok(answer);
        }
        submit()?;
        let (waiters, queued) = (vec![(client, waiter)], vec![client]);
        jobs.insert(key.clone(), StepJob { work: Some(work), waiters, queued });
        Ok(answer)
    }

    /// Takes the work for a step in the turn of this client; `None` if another thread has it, or if
    /// nothing waits for it any more.
    pub(crate) fn take(&self, key: &K, client: ClientNet) -> Option<W> {
        let mut jobs = lock(&self.jobs);
        let job = jobs.get_mut(key)?;
        job.queued.retain(|queued| *queued != client);
        let work = job.work.take()?;
        if job.is_wanted() {
            return Some(work);
        }
        jobs.remove(key);
        None
    }

    /// Puts the work back after a step that was not the last one; `submit` queues the next step for
    /// each waiting client that has none queued. If none can be queued, the work is abandoned.
    pub(crate) fn put_back<E>(
        &self,
        key: &K,
        work: W,
        mut submit: impl FnMut(ClientNet) -> Result<(), E>,
    ) {
        let mut jobs = lock(&self.jobs);
        let Some(job) = jobs.get_mut(key) else { return };
        if job.is_wanted() {
            for (client, _) in &job.waiters {
                if !job.queued.contains(client) && submit(*client).is_ok() {
                    job.queued.push(*client);
                }
            }
        }
        job.work = Some(work);
        if job.queued.is_empty() {
            jobs.remove(key);
        }
    }

    /// Ends the work, and returns the senders of all that wait for it.
    pub(crate) fn finish(&self, key: &K) -> Vec<oneshot::Sender<T>> {
        let job = lock(&self.jobs).remove(key);
        job.into_iter().flat_map(|job| job.waiters).map(|(_, waiter)| waiter).collect()
    }
}

impl<W, T> StepJob<W, T> {
    /// Forgets the waiters that have gone away, and returns whether any is left.
    fn is_wanted(&mut self) -> bool {
        self.waiters.retain(|(_, waiter)| !waiter.is_closed());
        !self.waiters.is_empty()
    }
}

impl<K, W, T> fmt::Debug for StepJobs<K, W, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepJobs").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::limits::batches::answer_all;

    #[test]
    fn work_moves_on_in_the_turn_of_each_waiting_client() {
        let jobs = StepJobs::<&str, u8, u8>::default();
        let client = |last| ClientNet::of(Some(([192, 0, 2, last], 1).into()));
        let mut queued = Vec::new();
        let mut join = |last: u8, work: u8, is_full: bool| {
            jobs.join(&"key", client(last), work, || {
                queued.push(last);
                if is_full { Err(()) } else { Ok(()) }
            })
        };
        assert!(join(1, 10, true).is_err());
        let mut answers =
            [(1, 0), (1, 1), (2, 2)].map(|(who, work)| join(who, work, false).unwrap());
        assert_eq!(queued, [1, 1, 2]);
        assert_eq!(jobs.take(&"key", client(2)), Some(0));
        assert_eq!(jobs.take(&"key", client(1)), None, "another thread has it");
        let mut next = Vec::new();
        jobs.put_back(&"key", 7, |client| {
            next.push(client);
            Ok::<(), ()>(())
        });
        assert_eq!(next, [client(1), client(2)], "each has a turn again");
        assert_eq!(jobs.take(&"key", client(1)), Some(7));
        answer_all(jobs.finish(&"key"), &9);
        assert!(answers.iter_mut().all(|answer| answer.try_recv() == Ok(9)));
        assert_eq!(jobs.take(&"key", client(2)), None, "it is done");
        drop(jobs.join(&"key", client(3), 0, || Ok::<(), ()>(())).unwrap());
        assert_eq!(jobs.take(&"key", client(3)), None, "nothing waits for it");
        assert!(lock(&jobs.jobs).is_empty());
    }
}
