//! Makes digests on threads of their own, a slice at a time, in which clients take turns: they read
//! whole files, which takes minutes, and on the helper threads they would delay all other requests.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use underpass_engine::Version;
use underpass_engine::wait::lock;
use underpass_protocol::digest::Hasher;
use underpass_transport::digest::{ComputeError, add_range};

use crate::digest::jobs::{DigestError, DigestJob, DigestRequest, DigestResult};
use crate::digest::settle::wait_for_writes;
use crate::server::limits::disk_queue::{ClientNet, SLICE};
use crate::server::shared::Shared;

/// Makes and remembers a digest, or waits for one that is being made already. A digest for which no
/// future waits any more is not made.
pub(crate) async fn make(
    shared: &Arc<Shared>,
    client: ClientNet,
    request: DigestRequest,
) -> DigestResult {
    let Some(answer) = enqueue(shared, client, request) else { return Err(DigestError::Busy) };
    answer.await.unwrap_or(Err(DigestError::Busy))
}

/// Begins a job, or joins those that wait for it already.
fn enqueue(
    shared: &Arc<Shared>,
    client: ClientNet,
    request: DigestRequest,
) -> Option<oneshot::Receiver<DigestResult>> {
    let (waiter, answer) = oneshot::channel();
    let jobs = &mut lock(&shared.digests.state).jobs;
    if let Some(job) = jobs.iter().find(|job| job.is_for(&request)) {
        lock(&job.waiters).push(waiter);
        return Some(answer);
    }
    let hasher = Hasher::new(request.algorithm);
    let job = Arc::new(DigestJob { request, waiters: Mutex::new(vec![waiter]) });
    let digest = PartialDigest { job: Arc::clone(&job), hasher, at: 0 };
    let task = Arc::clone(shared);
    shared.digests.queue.submit(client, move || step(&task, client, digest)).ok()?;
    jobs.push(job);
    Some(answer)
}

/// Reads the next slice of a file, and submits the one after it.
fn step(shared: &Arc<Shared>, client: ClientNet, mut digest: PartialDigest) {
    let job = Arc::clone(&digest.job);
    let result = digest.read_slice(shared).or_else(|| {
        let task = Arc::clone(shared);
        let next = shared.digests.queue.resume(client, move || step(&task, client, digest));
        next.err().map(|_| Err(DigestError::Busy))
    });
    if let Some(result) = result {
        let mut state = lock(&shared.digests.state);
        state.jobs.retain(|known| !Arc::ptr_eq(known, &job));
        // The lock is held meanwhile: a later request finds the result, or starts over.
        for waiter in lock(&job.waiters).drain(..) {
            let _ = waiter.send(result);
        }
    }
}

/// A digest of the first bytes of a file.
struct PartialDigest {
    job: Arc<DigestJob>,
    hasher: Hasher,
    /// The number of bytes that were read.
    at: u64,
}

impl PartialDigest {
    /// Reads a slice; returns the result if that was the last one. A digest is remembered, unless
    /// that was done meanwhile.
    fn read_slice(&mut self, shared: &Shared) -> Option<DigestResult> {
        let DigestRequest { file, version, algorithm } = &self.job.request;
        if self.at == 0 {
            if shared.digests.get(version, &[*algorithm]).is_some() {
                return Some(Ok(()));
            }
            wait_for_writes(file, version);
        }
        let is_current = || Version::of(file).is_ok_and(|now| now == *version);
        let end = version.size().min(self.at + SLICE);
        let mut read_bytes = 0;
        let outcome = add_range(&mut self.hasher, file, self.at..end, |read| {
            read_bytes = read;
            self.job.is_wanted() && is_current()
        });
        let is_unchanged = is_current();
        let is_made = outcome.is_ok() && is_unchanged && end == version.size();
        shared.metrics.digest(read_bytes, is_made);
        match outcome {
            Ok(()) if is_made => {
                let digest = self.hasher.clone().finish();
                shared.digests.remember(file, *version, &[digest]);
                Some(Ok(()))
            }
            Ok(()) if is_unchanged => {
                self.at = end;
                None
            }
            Err(ComputeError::Io(_)) if is_unchanged => Some(Err(DigestError::Unreadable)),
            _ => Some(Err(DigestError::Changing)),
        }
    }
}
