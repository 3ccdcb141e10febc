//! Makes the checksums of large files, on threads of their own and a slice at a time, in which
//! clients take turns.

use std::sync::Arc;

use tokio::sync::oneshot;
use underpass_engine::wait::lock;
use underpass_protocol::FileVersion;

use super::checksum::{ChecksumRequest, ChecksumResult, PartialSum};
use super::checksums::ChecksumKey;
use crate::server::limits::disk_queue::ClientNet;
use crate::server::shared::Shared;

/// A checksum that is being made. It is given up if nothing waits for it any more.
#[derive(Debug)]
pub(crate) struct ChecksumTask {
    pub(crate) path: Vec<u8>,
    pub(crate) version: FileVersion,
    pub(crate) made: oneshot::Receiver<ChecksumResult>,
}

/// Begins to make a checksum, or joins those that wait for it already.
pub(crate) fn begin(
    shared: &Arc<Shared>,
    client: ClientNet,
    request: ChecksumRequest,
) -> ChecksumTask {
    let ChecksumRequest { path, file, version } = request;
    let (waiter, made) = oneshot::channel();
    let key = ChecksumKey::of(&version);
    let mut waiters = lock(&shared.checksum_jobs.waiters);
    // A job remembers its result before it forgets those that wait.
    if let Some(checksum) = shared.checksums.get(&version) {
        let _ = waiter.send(Ok(checksum));
        return ChecksumTask { path, version, made };
    }
    let waiting = waiters.entry(key).or_default();
    waiting.push(waiter);
    if waiting.len() == 1 {
        let (task, sum) = (Arc::clone(shared), PartialSum::new(file, version));
        let step = move || step(&task, client, sum);
        if shared.checksum_jobs.queue.resume(client, step).is_err() {
            waiters.remove(&key);
        }
    }
    ChecksumTask { path, version, made }
}

/// Reads the next slice of a file, and submits the one after it.
fn step(shared: &Arc<Shared>, client: ClientNet, mut sum: PartialSum) {
    let key = ChecksumKey::of(&sum.version);
    let jobs = &shared.checksum_jobs;
    if !jobs.is_wanted(key) {
        return;
    }
    let before = sum.at;
    let made = sum.read_slice();
    shared.metrics.digest(sum.at - before, false);
    let Some(made) = made else {
        let task = Arc::clone(shared);
        if jobs.queue.resume(client, move || step(&task, client, sum)).is_err() {
            lock(&jobs.waiters).remove(&key);
        }
        return;
    };
    if let Ok(checksum) = made {
        shared.checksums.keep(&sum.version, checksum);
    }
    for waiter in lock(&jobs.waiters).remove(&key).unwrap_or_default() {
        // The client may have left.
        let _ = waiter.send(made);
    }
}
