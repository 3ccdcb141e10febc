//! Makes digests on threads of their own: they read whole files, which takes minutes, and as many
//! as there are helpers would keep everybody else from being helped.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{SeekFrom, seek};
use tokio::sync::oneshot;
use underpass_engine::Version;

use super::super::shared::Shared;
use super::super::worker::step_back;
use super::Digests;
use crate::digest::{Algorithm, Stopped, compute};

/// A digest that somebody wants.
#[derive(Clone, Debug)]
pub(in crate::server) struct Request {
    pub(super) file: Arc<OwnedFd>,
    pub(super) version: Version,
    pub(super) algorithm: Algorithm,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Undigested {
    /// Somebody is writing to the file.
    Changing,
    /// The file cannot be read.
    Unreadable,
    /// Too many are wanted at once.
    Busy,
}

/// What is to be done, and by how many it is being done.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    waiting: VecDeque<Arc<Job>>,
    running: Vec<Arc<Job>>,
    threads: usize,
}

#[derive(Debug)]
struct Job {
    request: Request,
    /// Those who want to know when it is done.
    askers: Mutex<Vec<oneshot::Sender<Outcome>>>,
}

type Outcome = Result<(), Undigested>;

impl Digests {
    /// Has a digest made and remembered; one that is being made already is waited for. Nobody
    /// waits who drops the future, and what nobody waits for is not made.
    pub(in crate::server) async fn make(shared: &Arc<Shared>, request: Request) -> Outcome {
        let Some(answer) = shared.digests.ask(shared, request) else {
            return Err(Undigested::Busy);
        };
        answer.await.unwrap_or(Err(Undigested::Busy))
    }

    /// Puts a job into the queue, and sees to it that somebody does it.
    fn ask(&self, shared: &Arc<Shared>, request: Request) -> Option<oneshot::Receiver<Outcome>> {
        let (asker, answer) = oneshot::channel();
        let mut state = self.lock();
        let jobs = &mut state.jobs;
        let mut known = jobs.running.iter().chain(&jobs.waiting);
        if let Some(job) = known.find(|job| job.is_for(&request)) {
            job.askers().push(asker);
            return Some(answer);
        }
        if jobs.waiting.len() >= MOST_WAITING {
            return None;
        }
        jobs.waiting.push_back(Arc::new(Job { request, askers: Mutex::new(vec![asker]) }));
        if jobs.threads < MOST_THREADS {
            let shared = Arc::clone(shared);
            let work = move || {
                step_back();
                shared.digests.work(&shared);
            };
            let thread = thread::Builder::new().name("digest".to_owned()).stack_size(STACK);
            match thread.spawn(work) {
                Ok(_) => jobs.threads += 1,
                // Somebody else may come to it.
                Err(_) if jobs.threads > 0 => {}
                Err(_) => {
                    jobs.waiting.pop_back();
                    return None;
                }
            }
        }
        Some(answer)
    }

    /// Does what is to be done until nothing is.
    fn work(&self, shared: &Shared) {
        while let Some(job) = self.next() {
            let outcome = self.run(shared, &job);
            let mut state = self.lock();
            state.jobs.running.retain(|running| !Arc::ptr_eq(running, &job));
            // Under the lock: whoever asks from now on finds what was made, or begins anew.
            for asker in job.askers().drain(..) {
                let _ = asker.send(outcome);
            }
        }
    }

    /// The next job; `None` is the end of the thread.
    fn next(&self) -> Option<Arc<Job>> {
        let jobs = &mut self.lock().jobs;
        let Some(job) = jobs.waiting.pop_front() else {
            jobs.threads -= 1;
            return None;
        };
        jobs.running.push(Arc::clone(&job));
        Some(job)
    }

    /// Makes a digest and remembers it, unless that was done meanwhile.
    fn run(&self, shared: &Shared, job: &Job) -> Outcome {
        let Request { file, version, algorithm } = &job.request;
        if self.get(version, &[*algorithm]).is_some() {
            return Ok(());
        }
        settle(file, version);
        let is_current = || Version::of(file).is_ok_and(|now| now == *version);
        let mut read_bytes = 0;
        let outcome = compute(file, 0..version.size(), &[*algorithm], |read| {
            read_bytes = read;
            job.is_wanted() && is_current()
        });
        let is_unchanged = is_current();
        shared.metrics.digest(read_bytes, outcome.is_ok() && is_unchanged);
        let digests = match outcome {
            Ok(computed) if is_unchanged => computed.digests,
            Err(Stopped::Io(_)) if is_unchanged => return Err(Undigested::Unreadable),
            _ => return Err(Undigested::Changing),
        };
        self.remember(Arc::clone(file), *version, digests);
        Ok(())
    }
}

impl Job {
    /// Whether it makes the digest that is asked for.
    fn is_for(&self, request: &Request) -> bool {
        self.request.version == request.version && self.request.algorithm == request.algorithm
    }

    /// Whether anybody still waits for it.
    fn is_wanted(&self) -> bool {
        self.askers().iter().any(|asker| !asker.is_closed())
    }

    fn askers(&self) -> MutexGuard<'_, Vec<oneshot::Sender<Outcome>>> {
        self.askers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until what is written to a file from now on changes its times.
///
/// Two writes within one tick of the kernel's clock leave the same ones. And a write(2) changes
/// them before it changes the bytes: looking for data takes the lock that it holds.
fn settle(file: &OwnedFd, version: &Version) {
    let (seconds, nanoseconds) = version.changed();
    let changed = u64::try_from(seconds).ok().zip(u32::try_from(nanoseconds).ok());
    let Some((seconds, nanoseconds)) = changed else { return };
    let until = UNIX_EPOCH + Duration::new(seconds, nanoseconds) + TICKS;
    if let Ok(left) = until.duration_since(SystemTime::now()) {
        // Not longer, if the clock was set back since.
        thread::sleep(left.min(TICKS));
    }
    // At the last byte: nothing is searched. No answer to the question is of interest.
    let _ = seek(file, SeekFrom::Data(version.size().saturating_sub(1)));
}

/// Files that are read at once: two disks, or a large file and small ones.
const MOST_THREADS: usize = 2;

/// Files that wait for that.
const MOST_WAITING: usize = 1024;

/// Bytes for the stack of a thread.
const STACK: usize = 128 << 10;

/// Longer than any tick of the kernel's clock.
const TICKS: Duration = Duration::from_millis(25);
