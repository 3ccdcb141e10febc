//! Makes digests on threads of their own: they read whole files, which takes minutes, and on the
//! helper threads they would delay all other requests.

use std::sync::{Arc, Mutex};
use std::thread;

use tokio::sync::oneshot;
use underpass_engine::Version;
use underpass_engine::wait::lock;

use crate::digest::jobs::{DigestError, DigestJob, DigestRequest, DigestResult};
use crate::digest::known::Digests;
use crate::digest::settle::wait_for_writes;
use crate::digest::{ComputeError, compute};
use crate::server::limits::priority::step_back;
use crate::server::shared::Shared;

/// Makes and remembers a digest, or waits for one that is being made already. A digest for which no
/// future waits any more is not made.
pub(crate) async fn make(shared: &Arc<Shared>, request: DigestRequest) -> DigestResult {
    let Some(answer) = enqueue(shared, request) else { return Err(DigestError::Busy) };
    answer.await.unwrap_or(Err(DigestError::Busy))
}

/// Puts a job into the queue, and starts a thread if needed.
fn enqueue(
    shared: &Arc<Shared>,
    request: DigestRequest,
) -> Option<oneshot::Receiver<DigestResult>> {
    let (waiter, answer) = oneshot::channel();
    let mut state = lock(&shared.digests.state);
    let jobs = &mut state.jobs;
    let mut known = jobs.running.iter().chain(&jobs.waiting);
    if let Some(job) = known.find(|job| job.is_for(&request)) {
        lock(&job.waiters).push(waiter);
        return Some(answer);
    }
    if jobs.waiting.len() >= MAX_WAITING {
        return None;
    }
    jobs.waiting.push_back(Arc::new(DigestJob { request, waiters: Mutex::new(vec![waiter]) }));
    if jobs.threads < MAX_THREADS {
        let shared = Arc::clone(shared);
        let thread = thread::Builder::new().name("digest".to_owned()).stack_size(STACK);
        match thread.spawn(move || work(&shared)) {
            Ok(_) => jobs.threads += 1,
            // Another thread will take the job.
            Err(_) if jobs.threads > 0 => {}
            Err(_) => {
                jobs.waiting.pop_back();
                return None;
            }
        }
    }
    Some(answer)
}

/// Runs jobs until none is left.
fn work(shared: &Shared) {
    step_back();
    while let Some(job) = next(&shared.digests) {
        let outcome = run(shared, &job);
        let mut state = lock(&shared.digests.state);
        state.jobs.running.retain(|running| !Arc::ptr_eq(running, &job));
        // The lock is held meanwhile: a later request finds the result, or starts over.
        for waiter in lock(&job.waiters).drain(..) {
            let _ = waiter.send(outcome);
        }
    }
}

/// Takes the next job; `None` ends the thread.
fn next(digests: &Digests) -> Option<Arc<DigestJob>> {
    let jobs = &mut lock(&digests.state).jobs;
    let Some(job) = jobs.waiting.pop_front() else {
        jobs.threads -= 1;
        return None;
    };
    jobs.running.push(Arc::clone(&job));
    Some(job)
}

/// Makes a digest and remembers it, unless that was done meanwhile.
fn run(shared: &Shared, job: &DigestJob) -> DigestResult {
    let DigestRequest { file, version, algorithm } = &job.request;
    if shared.digests.get(version, &[*algorithm]).is_some() {
        return Ok(());
    }
    wait_for_writes(file, version);
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
        Err(ComputeError::Io(_)) if is_unchanged => return Err(DigestError::Unreadable),
        _ => return Err(DigestError::Changing),
    };
    shared.digests.remember(Arc::clone(file), *version, digests);
    Ok(())
}

/// The maximum number of files read at once: two disks, or a large file and small ones.
const MAX_THREADS: usize = 2;

/// The maximum number of files that wait to be read.
const MAX_WAITING: usize = 1024;

/// The number of bytes for the stack of a thread.
const STACK: usize = 128 << 10;
