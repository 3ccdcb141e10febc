//! Computes digests on dedicated threads, a slice at a time; clients take turns. Reading a whole
//! file can take minutes, which would delay all other requests on the helper threads.

use std::sync::Arc;
use std::time::Instant;

use underpass_engine::Version;
use underpass_protocol::digest::Hasher;
use underpass_transport::digest::{ComputeError, add_range};

use crate::digest::jobs::{DigestError, DigestKey, DigestRequest, DigestResult, PartialDigest};
use crate::digest::known::Digests;
use crate::digest::settle::wait_for_writes;
use crate::server::limits::batches::answer_all;
use crate::server::limits::disk_queue::{SLICE, SLICE_TIME};
use crate::server::limits::priority::{Work, let_others_run};
use crate::server::shared::ServerState;
use underpass_protocol::request::ClientNet;

/// Computes and remembers a digest, or waits for one that is being computed already. A digest that
/// no future awaits any more is abandoned.
pub(crate) async fn make(
    shared: &Arc<ServerState>,
    client: ClientNet,
    request: DigestRequest,
) -> DigestResult {
    let key = request.key();
    let digest = PartialDigest { hasher: Hasher::new(request.algorithm), request, at: 0 };
    let (task, of) = (Arc::clone(shared), key);
    let submit = || shared.digests.queue.submit(client, move || step(&task, client, of));
    let Ok(answer) = shared.digests.jobs.join(&key, client, digest, submit) else {
        return Err(DigestError::Busy);
    };
    answer.await.unwrap_or(Err(DigestError::Busy))
}

/// Reads the next slice of a file in the turn of a client, and submits the one after it.
fn step(shared: &Arc<ServerState>, client: ClientNet, key: DigestKey) {
    let Digests { jobs, queue, .. } = &shared.digests;
    let Some(mut digest) = jobs.take(&key, client) else { return };
    match digest.read_slice(shared) {
        // Later requests find the remembered digest, or start over.
        Some(result) => answer_all(jobs.finish(&key), &result),
        None => jobs.put_back(&key, digest, |client| {
            let task = Arc::clone(shared);
            queue.resume(client, move || step(&task, client, key))
        }),
    }
}

impl PartialDigest {
    /// Reads a slice; returns the result if that was the last one. A digest is remembered, unless
    /// another request has done so.
    fn read_slice(&mut self, shared: &ServerState) -> Option<DigestResult> {
        let DigestRequest { file, version, algorithm } = &self.request;
        if self.at == 0 {
            if shared.digests.get(version, &[*algorithm]).is_some() {
                return Some(Ok(()));
            }
            wait_for_writes(file, version);
        }
        let is_current = || Version::of(file).is_ok_and(|now| now == *version);
        let (range, began) = (self.at..version.size().min(self.at + SLICE), Instant::now());
        let mut read_bytes = 0;
        let outcome = add_range(&mut self.hasher, file, range, |read| {
            let_others_run(Work::Buffer);
            read_bytes = read;
            is_current() && began.elapsed() < SLICE_TIME
        });
        self.at += read_bytes;
        let is_failed = matches!(outcome, Err(ComputeError::Io(_)));
        let is_unchanged = is_current();
        let is_made = !is_failed && is_unchanged && self.at == version.size();
        shared.metrics.digest(read_bytes, is_made);
        if is_made {
            let digest = self.hasher.clone().finish();
            shared.digests.remember(file, *version, &[digest]);
            return Some(Ok(()));
        }
        match (is_unchanged, is_failed) {
            (true, false) => None,
            (true, true) => Some(Err(DigestError::Unreadable)),
            (false, _) => Some(Err(DigestError::Changing)),
        }
    }
}
