//! A pool of threads for blocking work: requests to the origin, and disk access.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use underpass_engine::wait::{lock, unpoison};

/// A pool with a limited number of threads, which exit after they have been idle for a while.
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
    jobs: VecDeque<(JobOwner, PoolJob)>,
    threads: usize,
    idle: usize,
    /// The client of each running job, unless other clients waited for the job when it began.
    running: Vec<Option<IpAddr>>,
}

type PoolJob = Box<dyn FnOnce() + Send>;

/// The client of a job, whose number of threads is limited, whether others wait for the job, and
/// whether the job waits for a thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobOwner {
    client: Option<IpAddr>,
    is_shared: Arc<AtomicBool>,
    queued: Arc<Mutex<Option<Instant>>>,
}

impl JobOwner {
    /// Begins with one client; `None` for no limit.
    pub(crate) fn new(client: Option<IpAddr>) -> Self {
        Self { client, ..Self::default() }
    }

    /// Records that a client waits for the job. Returns whether it is the first one besides the
    /// owner: unless the job runs already, it counts for no client then, and the pool must
    /// [admit](Pool::admit) it.
    #[must_use]
    pub(crate) fn join(&self, client: Option<IpAddr>) -> bool {
        self.client.is_some()
            && self.client != client
            && !self.is_shared.swap(true, Ordering::Relaxed)
    }

    /// Returns how long the job has been waiting for a thread; zero if it runs.
    pub(crate) fn waited(&self) -> Duration {
        lock(&self.queued).map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn set_queued(&self, is_queued: bool) {
        *lock(&self.queued) = is_queued.then(Instant::now);
    }

    /// Returns the client whose limit applies to the job.
    fn limited_client(&self) -> Option<IpAddr> {
        self.client.filter(|_| !self.is_shared.load(Ordering::Relaxed))
    }
}

impl Pool {
    /// Creates a pool, in which at most `max_waiting` jobs can wait for a thread.
    pub(crate) fn new(name: &'static str, max_threads: usize, max_waiting: usize) -> Self {
        let (state, arrived) = (Mutex::default(), Condvar::new());
        Self(Arc::new(PoolInner { name, max_threads, max_waiting, state, arrived }))
    }

    /// Runs a job on a thread of the pool; returns `false` if too many jobs wait already, or no
    /// thread can be started.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.run_for(&JobOwner::default(), job)
    }

    /// Runs a job of a client in the same way. Once half of the threads are busy, the jobs of a
    /// client are deferred while an eighth of all threads work for it.
    pub(crate) fn run_for(&self, owner: &JobOwner, job: impl FnOnce() + Send + 'static) -> bool {
        let mut state = lock(&self.0.state);
        if state.jobs.len() + state.running.len() >= self.0.max_threads + self.0.max_waiting {
            return false;
        }
        owner.set_queued(true);
        state.jobs.push_back((owner.clone(), Box::new(job)));
        self.find_thread(&mut state);
        // If there are other threads, one of them will run it.
        let unrun = if state.threads == 0 { state.jobs.pop_back() } else { None };
        // The job is dropped without holding the lock.
        drop(state);
        unrun.is_none()
    }

    /// Lets a job begin that others [have joined](JobOwner::join).
    pub(crate) fn admit(&self) {
        self.find_thread(&mut lock(&self.0.state));
    }

    /// Finds a thread for a job that has become eligible since the last call, unless all are busy.
    fn find_thread(&self, state: &mut PoolState) {
        let may_run = state.jobs.iter().filter(|(owner, _)| self.0.may_begin(state, owner));
        let number = may_run.count();
        if state.idle >= number {
            if number > 0 {
                self.0.arrived.notify_one();
            }
        } else if state.threads < self.0.max_threads {
            let inner = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name(self.0.name.to_owned());
            state.threads += usize::from(thread.spawn(move || inner.work()).is_ok());
        }
    }

    /// Returns whether jobs wait for a thread while all are busy.
    pub(crate) fn has_waiting(&self) -> bool {
        self.has_waiting_for(&JobOwner::default())
    }

    /// Returns whether a waiting job could begin if one of this owner ended: because all threads
    /// are busy, or because its client has too many.
    pub(crate) fn has_waiting_for(&self, running: &JobOwner) -> bool {
        let state = lock(&self.0.state);
        let is_full = state.running.len() >= state.threads;
        // It only counts for its client if no other client waited for it when it began.
        let client = running.client.filter(|client| state.running.contains(&Some(*client)));
        if !is_full && client.is_none() {
            return false;
        }
        state.jobs.iter().any(|(owner, _)| {
            if self.0.may_begin(&state, owner) {
                is_full
            } else {
                client.is_some() && owner.limited_client() == client
            }
        })
    }
}

impl PoolInner {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            let next = state.jobs.iter().position(|(owner, _)| self.may_begin(&state, owner));
            if let Some((owner, job)) = next.and_then(|at| state.jobs.remove(at)) {
                let client = owner.limited_client();
                state.running.push(client);
                drop(state);
                owner.set_queued(false);
                // A panic has been reported already; the thread is needed for other jobs.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = lock(&self.state);
                // This thread takes the next job, which may be of the same client.
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

    fn may_begin(&self, state: &PoolState, owner: &JobOwner) -> bool {
        let client = owner.limited_client();
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

/// How long an idle thread waits for another job.
const IDLE_TIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;

    /// A pool of eight threads, whose jobs send their numbers and then block until released.
    struct Held {
        pool: Pool,
        tell: Sender<u8>,
        has_begun: Receiver<u8>,
        open: Sender<()>,
        opened: Arc<Mutex<Receiver<()>>>,
    }

    impl Held {
        fn new() -> Self {
            let ((tell, has_begun), (open, opened)) = (mpsc::channel(), mpsc::channel());
            let (pool, opened) = (Pool::new("test", 8, 100), Arc::new(Mutex::new(opened)));
            Self { pool, tell, has_begun, open, opened }
        }

        fn submit(&self, owner: &JobOwner, number: u8) {
            let (tell, opened) = (self.tell.clone(), Arc::clone(&self.opened));
            let job = move || {
                tell.send(number).unwrap();
                let _ = opened.lock().unwrap().recv();
            };
            assert!(self.pool.run_for(owner, job));
        }

        fn next(&self) -> u8 {
            self.has_begun.recv().unwrap()
        }
    }

    fn client(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn owner(last: u8) -> JobOwner {
        JobOwner::new(client(last))
    }

    #[test]
    fn one_client_leaves_threads_for_others() {
        let held = Held::new();
        (0..20).for_each(|_| held.submit(&owner(1), 1));
        (0..4).for_each(|_| assert_eq!(held.next(), 1));
        for who in [2, 3, 4, 5] {
            held.submit(&owner(who), who);
            assert_eq!(held.next(), who, "it does not wait for those of the first");
        }
        let Held { has_begun, open, .. } = held;
        drop(open);
        let rest: Vec<_> = (0..16).map(|_| has_begun.recv().unwrap()).collect();
        assert_eq!(rest, [1; 16], "none is forgotten");
    }

    #[test]
    fn jobs_that_another_client_joins_are_not_held_back() {
        let held = Held::new();
        let owners = [(); 7].map(|()| owner(1));
        (0..7).for_each(|number| held.submit(&owners[usize::from(number)], number));
        let first: Vec<_> = (0..4).map(|_| held.next()).collect();
        assert_eq!(first.iter().max(), Some(&3));
        assert!(!owners[5].join(client(1)), "it waits for its own");
        assert!(owners[5].join(client(2)) && !owners[5].join(client(3)), "once");
        held.pool.admit();
        assert_eq!(held.next(), 5);
        assert!(owners[6].join(None));
        held.pool.admit();
        assert_eq!(held.next(), 6);
        assert!(held.has_begun.try_recv().is_err(), "the others wait");
        let Held { has_begun, open, .. } = held;
        drop(open);
        assert_eq!(has_begun.recv(), Ok(4));
    }

    #[test]
    fn an_owner_knows_how_long_its_job_waits() {
        let held = Held::new();
        let owners = [(); 9].map(|()| owner(1));
        let owners: Vec<_> = owners.iter().zip(0..9).collect();
        owners.iter().for_each(|(owner, number)| held.submit(owner, *number));
        let running: Vec<_> = (0..4).map(|_| held.next()).collect();
        std::thread::sleep(Duration::from_millis(2));
        for (owner, number) in &owners {
            let has_waited = owner.waited() >= Duration::from_millis(2);
            assert_eq!(has_waited, !running.contains(number), "{number}");
        }
    }

    #[test]
    fn a_client_with_too_many_jobs_waits_only_for_its_own() {
        let held = Held::new();
        let submit = |who: u8| held.submit(&owner(who), who);
        let waits_for = |who: u8| held.pool.has_waiting_for(&owner(who));
        (0..4).for_each(|_| submit(1));
        (0..4).for_each(|_| assert_eq!(held.next(), 1));
        submit(1);
        assert!(waits_for(1));
        assert!(!waits_for(2) && !held.pool.has_waiting(), "threads are left");
        (2..6).for_each(submit);
        (2..6).for_each(|_| assert!((2..6).contains(&held.next())));
        assert!(!waits_for(2), "it would be passed over");
        submit(6);
        assert!(waits_for(2) && held.pool.has_waiting());
    }
}
