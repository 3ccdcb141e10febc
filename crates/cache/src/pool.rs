//! A pool of threads for work that waits: for the origin, or for the disk.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
    jobs: VecDeque<PoolJob>,
    threads: usize,
    idle: usize,
    /// The number of jobs that run.
    running: usize,
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
        let mut state = self.0.lock();
        if state.jobs.len() + state.running >= self.0.max_threads + self.0.max_waiting {
            return false;
        }
        state.jobs.push_back(Box::new(job));
        if state.idle >= state.jobs.len() {
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
}

impl PoolInner {
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.running += 1;
                drop(state);
                // A job that panics has reported it; the thread is needed for others.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
                state.running -= 1;
                continue;
            }
            state.idle += 1;
            let (next, timeout) =
                self.arrived.wait_timeout(state, IDLE_TIME).unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.0.name).finish()
    }
}

/// How long a thread waits for another job.
const IDLE_TIME: Duration = Duration::from_secs(10);
