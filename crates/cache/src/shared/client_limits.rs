//! Limits the fetches, fills and relays that each client has in progress.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use underpass_engine::wait::lock;

/// The number of jobs of each client, with a limit for each and one for all.
#[derive(Clone, Debug)]
pub(crate) struct ClientLimits {
    jobs: Arc<Mutex<ClientJobs>>,
    /// The maximum for one client, given the number of jobs of all others.
    max: fn(usize) -> usize,
    /// The maximum for all clients together.
    total: usize,
}

#[derive(Debug, Default)]
struct ClientJobs {
    /// The jobs of each client; `None` for those without a client.
    counts: HashMap<Option<IpAddr>, usize>,
    /// The wakers of the tasks that wait for a job to end, by number.
    waiting: HashMap<u64, Waker>,
}

/// The permit of a job. Dropping it ends the job.
#[derive(Debug)]
pub(crate) struct Permit {
    limits: ClientLimits,
    client: Option<IpAddr>,
}

impl ClientLimits {
    /// Creates limits: `max` returns how many jobs of a client may run or wait, given the number of
    /// jobs of all others, and `total` limits all clients together.
    pub(crate) fn new(max: fn(usize) -> usize, total: usize) -> Self {
        Self { jobs: Arc::default(), max, total }
    }

    /// Counts one more job of a client; `None` if the client or all together have too many. Work
    /// without a client only counts towards the total.
    pub(crate) fn acquire(&self, client: Option<IpAddr>) -> Option<Permit> {
        self.acquire_or_wait(client, None)
    }

    /// Counts one more job of a client; `None` if the client or all together have too many: the
    /// task is then woken once a job has ended. The task has its own number, with which it
    /// [stops waiting](Self::stop_waiting).
    pub(crate) fn acquire_or_wait(
        &self,
        client: Option<IpAddr>,
        task: Option<(u64, &Waker)>,
    ) -> Option<Permit> {
        let mut jobs = lock(&self.jobs);
        let own = jobs.counts.get(&client).copied().unwrap_or_default();
        let others = jobs.counts.values().sum::<usize>() - own;
        let max = client.map_or(usize::MAX, |_| (self.max)(others));
        if own >= max || own + others >= self.total {
            let before = task.and_then(|(it, waker)| jobs.waiting.insert(it, waker.clone()));
            drop(jobs);
            drop(before);
            return None;
        }
        jobs.counts.insert(client, own + 1);
        Some(Permit { limits: self.clone(), client })
    }

    /// Returns a number for a task that may have to wait.
    pub(crate) fn new_task() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Forgets the waker of a task that has ended.
    pub(crate) fn stop_waiting(&self, task: u64) {
        let waker = lock(&self.jobs).waiting.remove(&task);
        drop(waker);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut jobs = lock(&self.limits.jobs);
        if let Some(count) = jobs.counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                jobs.counts.remove(&self.client);
            }
        }
        let waiting = std::mem::take(&mut jobs.waiting);
        drop(jobs);
        waiting.into_values().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[test]
    fn each_client_has_its_own_limit() {
        let clients = ClientLimits::new(|_| 3, usize::MAX);
        let (one, two) = (Some(IpAddr::from([192, 0, 2, 1])), Some(IpAddr::from([192, 0, 2, 2])));
        let mut permits: Vec<_> = (0..3).map(|_| clients.acquire(one)).collect();
        assert!(permits.iter().all(Option::is_some));
        assert!(clients.acquire(one).is_none() && clients.acquire(two).is_some());
        assert!(clients.acquire(None).is_some());
        permits.pop();
        assert!(clients.acquire(one).is_some());
        drop(permits);
        assert!(lock(&clients.jobs).counts.is_empty());
    }

    #[test]
    fn a_few_clients_do_not_use_up_the_limit() {
        let clients = ClientLimits::new(|others| ((64 - others) / 4).max(1), usize::MAX);
        let mut permits = Vec::new();
        let taken: Vec<_> = (1..=15)
            .map(|last| {
                let client = Some(IpAddr::from([192, 0, 2, last]));
                let before = permits.len();
                permits.extend(std::iter::from_fn(|| clients.acquire(client)));
                permits.len() - before
            })
            .collect();
        assert_eq!(taken, [16, 12, 9, 6, 5, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn clients_wait_for_their_common_limit() {
        let clients = ClientLimits::new(|_| 1, 2);
        let client = |last| Some(IpAddr::from([192, 0, 2, last]));
        let permits = [clients.acquire(client(1)), clients.acquire(None)];
        assert!(permits.iter().all(Option::is_some));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        for client in [client(2), None] {
            assert!(clients.acquire_or_wait(client, Some((1, &waker))).is_none());
        }
        assert!(clients.acquire_or_wait(client(3), Some((2, &waker))).is_none());
        clients.stop_waiting(2);
        assert_eq!(lock(&clients.jobs).waiting.len(), 1, "one for each that waits");
        drop(permits);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(clients.acquire(client(2)).is_some());
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
