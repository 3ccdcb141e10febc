//! Computes the checksums of large files on dedicated threads, a slice at a time; clients take
//! turns.

use std::sync::Arc;

use tokio::sync::oneshot;
use underpass_protocol::FileVersion;

use super::checksum::{ChecksumJobs, ChecksumRequest, ChecksumResult, PartialSum};
use super::checksums::ChecksumKey;
use crate::server::limits::batches::answer_all;
use crate::server::shared::ServerState;
use underpass_protocol::request::ClientNet;

/// A checksum that is being computed; it is abandoned once nothing waits for it.
#[derive(Debug)]
pub(crate) struct ChecksumTask {
    pub(crate) path: Vec<u8>,
    pub(crate) version: FileVersion,
    pub(crate) made: oneshot::Receiver<ChecksumResult>,
}

/// Begins to compute a checksum, or joins those that wait for it already.
pub(crate) fn begin(
    shared: &Arc<ServerState>,
    client: ClientNet,
    request: ChecksumRequest,
) -> ChecksumTask {
    let ChecksumRequest { path, file, version } = request;
    let ChecksumJobs { jobs, queue } = &shared.checksum_jobs;
    let (key, sum) = (ChecksumKey::of(&version), PartialSum::new(file, version));
    let joined = jobs.join(&key, client, sum, || {
        // A finished job stores its checksum before its waiters are forgotten, so it is found here.
        if let Some(checksum) = shared.checksums.get(&version) {
            return Err(Some(checksum));
        }
        let task = Arc::clone(shared);
        queue.resume(client, move || step(&task, client, key)).map_err(|_| None)
    });
    let made = joined.unwrap_or_else(|known| {
        let (waiter, made) = oneshot::channel();
        // Without a checksum the sender is dropped, and the client gets an error.
        if let Some(checksum) = known {
            let _ = waiter.send(Ok(checksum));
        }
        made
    });
    ChecksumTask { path, version, made }
}

/// Reads the next slice of a file in the turn of a client, and submits the one after it.
fn step(shared: &Arc<ServerState>, client: ClientNet, key: ChecksumKey) {
    let ChecksumJobs { jobs, queue } = &shared.checksum_jobs;
    let Some(mut sum) = jobs.take(&key, client) else { return };
    let before = sum.at;
    let made = sum.read_slice();
    shared.metrics.digest(sum.at - before, false);
    let Some(made) = made else {
        return jobs.put_back(&key, sum, |client| {
            let task = Arc::clone(shared);
            queue.resume(client, move || step(&task, client, key))
        });
    };
    if let Ok(checksum) = made {
        shared.checksums.keep(&sum.version, checksum);
    }
    answer_all(jobs.finish(&key), &made);
}
