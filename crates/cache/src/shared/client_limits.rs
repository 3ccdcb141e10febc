//! Limits the fetches, fills and relays that one client has in progress.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use underpass_engine::wait::lock;

/// The number of jobs of each client, with a bound.
#[derive(Clone, Debug)]
pub(crate) struct ClientLimits {
    jobs: Arc<Mutex<ClientJobs>>,
    /// The maximum for one client if the others have this many.
    max: fn(usize) -> usize,
}

#[derive(Debug, Default)]
struct ClientJobs {
    counts: HashMap<IpAddr, usize>,
    /// The wakers of the tasks that wait for a job to end.
    waiting: Vec<Waker>,
}

/// A job of a client. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Permit(Option<(ClientLimits, IpAddr)>);

impl ClientLimits {
    /// Lets each client have at most this many jobs that run or wait, if all others together have
    /// the number that is given to the function.
    pub(crate) fn new(max: fn(usize) -> usize) -> Self {
        Self { jobs: Arc::default(), max }
    }

    /// Counts one more for a client; `None` if it has too many. Work without a client is not
    /// limited.
    pub(crate) fn acquire(&self, client: Option<IpAddr>) -> Option<Permit> {
        self.acquire_or_wait(client, None)
    }

    /// Counts one more for a client; `None` if it has too many: then the waker is called once a job
    /// has ended.
    pub(crate) fn acquire_or_wait(
        &self,
        client: Option<IpAddr>,
        waker: Option<&Waker>,
    ) -> Option<Permit> {
        let Some(client) = client else { return Some(Permit(None)) };
        let mut jobs = lock(&self.jobs);
        let own = jobs.counts.get(&client).copied().unwrap_or_default();
        if own >= (self.max)(jobs.counts.values().sum::<usize>() - own) {
            let is_new = |waker: &&Waker| !jobs.waiting.iter().any(|it| it.will_wake(waker));
            let waker = waker.filter(is_new).cloned();
            jobs.waiting.extend(waker);
            return None;
        }
        jobs.counts.insert(client, own + 1);
        Some(Permit(Some((self.clone(), client))))
    }
}

impl Permit {
    /// Returns the client, unless it is one without a bound.
    pub(crate) fn client(&self) -> Option<IpAddr> {
        self.0.as_ref().map(|(_, client)| *client)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some((clients, client)) = &self.0 else { return };
        let mut jobs = lock(&clients.jobs);
        if let Some(count) = jobs.counts.get_mut(client) {
            *count -= 1;
            if *count == 0 {
                jobs.counts.remove(client);
            }
        }
        let waiting = std::mem::take(&mut jobs.waiting);
        drop(jobs);
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_bound_and_others_have_their_own() {
        let clients = ClientLimits::new(|_| 3);
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
    fn a_few_clients_leave_some_for_others() {
        let clients = ClientLimits::new(|others| ((64 - others) / 4).max(1));
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
}
