//! Queues of long disk work. Each has a fixed number of threads, which run at a lower priority than
//! the workers, and a bounded length: a job that finds no place is refused with 503.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use underpass_engine::wait::lock;
use underpass_protocol::request::ClientNet;

use crate::server::limits::priority::step_back_to_compute;

/// A queue of disk work. Clients take turns, so that one with many requests delays only itself.
pub(crate) struct DiskQueue {
    name: &'static str,
    max_threads: usize,
    max_waiting: usize,
    state: Mutex<QueueState>,
}

/// The error of a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

#[derive(Default)]
struct QueueState {
    /// The jobs by client; none of the lists is empty.
    waiting: HashMap<ClientNet, VecDeque<DiskJob>>,
    /// The clients in the order of their turns.
    turns: VecDeque<ClientNet>,
    /// The number of waiting jobs.
    count: usize,
    threads: usize,
    /// The number of running jobs of each client; none is zero.
    running: HashMap<ClientNet, usize>,
}

type DiskJob = Box<dyn FnOnce() + Send>;

impl DiskQueue {
    /// Creates a queue whose threads have this name. One client may have a quarter of
    /// `max_waiting`.
    pub(crate) fn new(name: &'static str, max_threads: usize, max_waiting: usize) -> Arc<Self> {
        Arc::new(Self { name, max_threads, max_waiting, state: Mutex::default() })
    }

    /// Puts a job into the queue.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] if too many jobs wait, of all clients or of this one.
    pub(crate) fn submit(
        self: &Arc<Self>,
        client: ClientNet,
        job: impl FnOnce() + Send + 'static,
    ) -> Result<(), QueueFull> {
        let state = lock(&self.state);
        let own = state.waiting.get(&client).map_or(0, VecDeque::len);
        if state.count >= self.max_waiting || own >= self.max_waiting.div_ceil(4) {
            return Err(QueueFull);
        }
        self.push(state, client, Box::new(job))
    }

    /// Puts the next step of a job into the queue, without its limits: the job was admitted before.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] if there is no thread and none can be started.
    pub(crate) fn resume(
        self: &Arc<Self>,
        client: ClientNet,
        job: impl FnOnce() + Send + 'static,
    ) -> Result<(), QueueFull> {
        self.push(lock(&self.state), client, Box::new(job))
    }

    fn push(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, QueueState>,
        client: ClientNet,
        job: DiskJob,
    ) -> Result<(), QueueFull> {
        if state.threads < self.max_threads && state.running_of(client) < self.share() {
            let queue = Arc::clone(self);
            let builder = thread::Builder::new().name(self.name.to_owned()).stack_size(STACK);
            match builder.spawn(move || queue.work()) {
                Ok(_) => state.threads += 1,
                // Another thread will take the job.
                Err(_) if state.threads > 0 => {}
                Err(_) => {
                    // What the job holds is dropped without the lock.
                    drop(state);
                    return Err(QueueFull);
                }
            }
        }
        let QueueState { waiting, turns, count, .. } = &mut *state;
        let jobs = waiting.entry(client).or_default();
        if jobs.is_empty() {
            turns.push_back(client);
        }
        jobs.push_back(job);
        *count += 1;
        Ok(())
    }

    /// Runs jobs until none is left.
    fn work(&self) {
        step_back_to_compute();
        let mut last = None;
        while let Some((client, job)) = self.next(last) {
            last = Some(client);
            // A job that panics drops the sender that its client waits for, and the client gets an
            // error.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// Returns the number of threads that may work for one client: half of several, so that an
    /// unresponsive disk leaves some to other clients.
    fn share(&self) -> usize {
        self.max_threads.div_ceil(2)
    }

    /// Returns the next job after one of client `last`; `None` ends the thread.
    fn next(&self, last: Option<ClientNet>) -> Option<(ClientNet, DiskJob)> {
        let mut state = lock(&self.state);
        if let Some(client) = last {
            state.finish(client);
        }
        let at = state.turn_below(self.share());
        let QueueState { waiting, turns, count, threads, running } = &mut *state;
        let next = at.and_then(|at| turns.remove(at)).and_then(|client| {
            let jobs = waiting.get_mut(&client)?;
            let job = jobs.pop_front();
            if jobs.is_empty() {
                waiting.remove(&client);
            } else {
                turns.push_back(client);
            }
            job.map(|job| (client, job))
        });
        match &next {
            Some((client, _)) => {
                *count -= 1;
                *running.entry(*client).or_default() += 1;
            }
            None => *threads -= 1,
        }
        next
    }
}

impl QueueState {
    fn running_of(&self, client: ClientNet) -> usize {
        self.running.get(&client).copied().unwrap_or(0)
    }

    /// Records that a job of a client has ended.
    fn finish(&mut self, client: ClientNet) {
        match self.running_of(client) {
            0 | 1 => drop(self.running.remove(&client)),
            more => drop(self.running.insert(client, more - 1)),
        }
    }

    /// Returns the place of the first client in turn for which fewer threads than this work.
    fn turn_below(&self, share: usize) -> Option<usize> {
        self.turns.iter().position(|client| self.running_of(*client) < share)
    }
}

impl fmt::Debug for DiskQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskQueue").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The number of bytes for the stack of a thread. Compression of a listing begins with tables of
/// some 300 KiB on the stack, several times that without optimization.
const STACK: usize = 2 << 20;

/// The number of bytes of a file that a job reads before another client has its turn.
pub(crate) const SLICE: u64 = 64 << 20;

/// The time after which a job that reads a file gives up its turn, however few bytes it has read: so
/// a read from slow storage ends soon after its clients have left.
pub(crate) const SLICE_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn client(last: u8) -> ClientNet {
        ClientNet::of(Some(([192, 0, 2, last], 1).into()))
    }

    #[test]
    fn clients_take_turns_and_a_full_queue_refuses() {
        let queue = DiskQueue::new("test", 1, 8);
        let (open, opened) = mpsc::channel::<()>();
        let (started, has_begun) = mpsc::channel();
        let (done, order) = mpsc::channel();
        let first = move || {
            started.send(()).unwrap();
            opened.recv().unwrap();
        };
        queue.submit(client(1), first).unwrap();
        has_begun.recv().unwrap();
        let submit = |who: u8| {
            let done = done.clone();
            queue.submit(client(who), move || done.send(who).unwrap())
        };
        assert_eq!((submit(1), submit(1), submit(1)), (Ok(()), Ok(()), Err(QueueFull)));
        assert_eq!((submit(2), submit(2), submit(3), submit(4)), (Ok(()), Ok(()), Ok(()), Ok(())));
        assert_eq!((submit(5), submit(6), submit(7)), (Ok(()), Ok(()), Err(QueueFull)));
        open.send(()).unwrap();
        let order: Vec<_> = (0..8).map(|_| order.recv().unwrap()).collect();
        assert_eq!(order, [1, 2, 3, 4, 5, 6, 1, 2]);
    }

    #[test]
    fn a_client_whose_jobs_do_not_end_leaves_threads_to_others() {
        for max_threads in [2, 3, 4] {
            let queue = DiskQueue::new("test", max_threads, 100);
            let (open, opened) = mpsc::channel::<()>();
            let opened = Arc::new(Mutex::new(opened));
            let ((begin, has_begun), (done, is_done)) = (mpsc::channel(), mpsc::channel());
            for _ in 0..8 {
                let (opened, begin, done) = (Arc::clone(&opened), begin.clone(), done.clone());
                let job = move || {
                    begin.send(()).unwrap();
                    done.send(lock(&opened).recv().map_or(1, |()| 0)).unwrap();
                };
                queue.submit(client(1), job).unwrap();
            }
            (0..max_threads.div_ceil(2)).for_each(|_| has_begun.recv().unwrap());
            assert!(has_begun.recv_timeout(Duration::from_millis(50)).is_err(), "{max_threads}");
            let other = done.clone();
            queue.submit(client(2), move || other.send(2).unwrap()).unwrap();
            assert_eq!(is_done.recv_timeout(Duration::from_secs(30)), Ok(2));
            drop(open);
            assert!((0..8).all(|_| is_done.recv() == Ok(1)));
        }
    }

    #[test]
    fn a_job_that_panics_costs_no_thread() {
        let queue = DiskQueue::new("test", 1, 8);
        let (done, is_done) = mpsc::channel();
        queue.submit(client(1), || panic!("on purpose")).unwrap();
        queue.submit(client(1), move || done.send(()).unwrap()).unwrap();
        is_done.recv().unwrap();
    }
}
