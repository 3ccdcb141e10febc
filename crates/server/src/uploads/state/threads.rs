//! The threads that receive uploads. A thread waits a while for another upload before it ends:
//! starting one takes as long as receiving a small file.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use underpass_engine::wait::{lock, unpoison};

/// The threads that receive uploads, at most one for each slot.
pub(crate) struct UploadThreads(Arc<ThreadsInner>);

struct ThreadsInner {
    max: usize,
    state: Mutex<ThreadsState>,
    arrived: Condvar,
}

#[derive(Default)]
struct ThreadsState {
    /// The work that a thread is about to take.
    jobs: Vec<Job>,
    threads: usize,
    idle: usize,
}

type Job = Box<dyn FnOnce() + Send>;

impl UploadThreads {
    /// Creates the state without threads, for this number of slots.
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(ThreadsInner { max, state: Mutex::default(), arrived: Condvar::new() }))
    }

    /// Runs the work of an upload, which must have a slot, on a thread; returns false if none can
    /// be started.
    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) -> bool {
        let mut state = lock(&self.0.state);
        state.jobs.push(Box::new(work));
        // If all threads exist, one whose upload has released its slot is about to be idle.
        if state.idle >= state.jobs.len() || state.threads >= self.0.max {
            drop(state);
            self.0.arrived.notify_one();
            return true;
        }
        let inner = Arc::clone(&self.0);
        let thread = thread::Builder::new().name("upload".to_owned()).stack_size(STACK);
        let is_started = thread.spawn(move || inner.work()).is_ok();
        if is_started {
            state.threads += 1;
        } else {
            state.jobs.pop();
        }
        is_started
    }
}

impl ThreadsInner {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop() {
                drop(state);
                // An upload that panics has reported it; the thread is needed for others.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = lock(&self.state);
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
}

impl fmt::Debug for UploadThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UploadThreads").field(&self.0.max).finish()
    }
}

/// The number of bytes for the stack of a thread.
const STACK: usize = 256 << 10;

/// The time for which a thread waits for another upload.
const IDLE_TIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_serves_one_upload_after_another() {
        let (threads, (sender, ids)) = (UploadThreads::new(1), mpsc::channel());
        for number in 0..4 {
            let sender = sender.clone();
            assert!(threads.run(move || {
                sender.send(thread::current().id()).unwrap();
                assert!(number != 1, "a panic ends no thread");
            }));
        }
        let ids: Vec<_> = (0..4).map(|_| ids.recv().unwrap()).collect();
        assert_eq!(ids, [ids[0]; 4]);
    }

    #[test]
    fn no_upload_waits_for_another() {
        let threads = UploadThreads::new(3);
        let (began, has_begun) = mpsc::channel();
        let (open, opened) = mpsc::channel::<()>();
        let opened = Arc::new(Mutex::new(opened));
        for number in 0..3 {
            let (began, opened) = (began.clone(), Arc::clone(&opened));
            assert!(threads.run(move || {
                began.send(number).unwrap();
                let _ = opened.lock().unwrap().recv();
            }));
            assert_eq!(has_begun.recv(), Ok(number));
        }
        drop(open);
    }
}
