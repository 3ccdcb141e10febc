//! A pool of threads for work that waits: for the origin, or for the disk.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use underpass_engine::wait::{lock, unpoison};

/// A pool of at most a number of threads, which end when they have had nothing to do for a while.
#[derive(Clone)]
pub(crate) struct Pool(Arc<PoolInner>);

struct PoolInner {
    name: &'static str,
    max_threads: usize,
    max_waiting: usize,
    state: Mutex<PoolState>,
    arrived: Condvar,
}

#[derive(Default)]
struct PoolState {
    jobs: VecDeque<(Option<IpAddr>, PoolJob)>,
    threads: usize,
    idle: usize,
    /// The client of each job that runs.
    running: Vec<Option<IpAddr>>,
}

type PoolJob = Box<dyn FnOnce() + Send>;

impl Pool {
    /// Creates a pool, for whose threads at most `max_waiting` jobs wait.
    pub(crate) fn new(name: &'static str, max_threads: usize, max_waiting: usize) -> Self {
        let (state, arrived) = (Mutex::default(), Condvar::new());
        Self(Arc::new(PoolInner { name, max_threads, max_waiting, state, arrived }))
    }

    /// Runs a job on a thread of the pool; returns `false` if too many wait already, or no thread
    /// can be had.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.run_for(None, job)
    }

    /// Runs a job of a client in the same way. Once half of the threads are busy, those of one
    /// client are passed over while an eighth of all threads works for it.
    pub(crate) fn run_for(
        &self,
        client: Option<IpAddr>,
        job: impl FnOnce() + Send + 'static,
    ) -> bool {
        let mut state = lock(&self.0.state);
        if state.jobs.len() + state.running.len() >= self.0.max_threads + self.0.max_waiting {
            return false;
        }
        state.jobs.push_back((client, Box::new(job)));
        let may_run = state.jobs.iter().filter(|(client, _)| self.0.may_begin(&state, *client));
        if state.idle >= may_run.count() {
            self.0.arrived.notify_one();
        } else if state.threads < self.0.max_threads {
            let inner = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name(self.0.name.to_owned());
            match thread.spawn(move || inner.work()) {
                Ok(_) => state.threads += 1,
                // The existing threads will run it.
                Err(_) if state.threads > 0 => {}
                Err(_) => {
                    state.jobs.pop_back();
                    return false;
                }
            }
        }
        true
    }

    /// Returns whether jobs wait for a thread.
    pub(crate) fn has_waiting(&self) -> bool {
        !lock(&self.0.state).jobs.is_empty()
    }
}

impl PoolInner {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            let next = state.jobs.iter().position(|(client, _)| self.may_begin(&state, *client));
            if let Some((client, job)) = next.and_then(|at| state.jobs.remove(at)) {
                state.running.push(client);
                drop(state);
                // A job that panics has reported it; the thread is needed for others.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = lock(&self.state);
                // This thread looks for the next one, which may be of the same client.
                if let Some(at) = state.running.iter().position(|of| *of == client) {
                    state.running.swap_remove(at);
                }
                continue;
            }
            state.idle += 1;
            let (next, timeout) = unpoison(self.arrived.wait_timeout(state, IDLE_TIME));
            state = next;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn may_begin(&self, state: &PoolState, client: Option<IpAddr>) -> bool {
        let own = || state.running.iter().filter(|of| **of == client).count();
        state.running.len() < self.max_threads.div_ceil(2)
            || client.is_none()
            || own() < self.max_threads.div_ceil(8)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.0.name).finish()
    }
}

/// The longest wait of an idle thread for another job.
const IDLE_TIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn one_client_leaves_threads_for_others() {
        let pool = Pool::new("test", 8, 100);
        let client = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
        let (began, has_begun) = mpsc::channel();
        let (open, opened) = mpsc::channel::<()>();
        let opened = Arc::new(Mutex::new(opened));
        let submit = |who: u8| {
            let (began, opened) = (began.clone(), Arc::clone(&opened));
            let job = move || {
                began.send(who).unwrap();
                let _ = opened.lock().unwrap().recv();
            };
            assert!(pool.run_for(client(who), job));
        };
        (0..20).for_each(|_| submit(1));
        (0..4).for_each(|_| assert_eq!(has_begun.recv(), Ok(1)));
        for who in [2, 3, 4, 5] {
            submit(who);
            assert_eq!(has_begun.recv(), Ok(who), "it does not wait for those of the first");
        }
        drop(open);
        let rest: Vec<_> = (0..16).map(|_| has_begun.recv().unwrap()).collect();
        assert_eq!(rest, [1; 16], "none is forgotten");
    }
}
