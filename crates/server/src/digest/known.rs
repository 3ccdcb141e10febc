//! Digests of the served files: computed once on request by dedicated threads, and remembered in
//! memory and with the file.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use underpass_engine::Version;
use underpass_engine::wait::lock;

use crate::digest::jobs::{DigestKey, DigestResult, PartialDigest};
use crate::digest::stored;
use crate::server::limits::disk_queue::DiskQueue;
use crate::server::limits::step_jobs::StepJobs;
use underpass_protocol::digest::{Algorithm, Digest};

/// The digests that all workers share.
#[derive(Debug)]
pub(crate) struct Digests {
    state: Mutex<KnownDigests>,
    /// The digests that wait to be made or are being made.
    pub(super) jobs: StepJobs<DigestKey, PartialDigest, DigestResult>,
    /// The steps of the jobs.
    pub(super) queue: Arc<DiskQueue>,
}

/// The known digests.
#[derive(Debug, Default)]
struct KnownDigests {
    /// The digests by inode; the version tells files of two file systems apart.
    known: HashMap<u64, (Version, Vec<Digest>)>,
}

impl Default for Digests {
    fn default() -> Self {
        let queue = DiskQueue::new("digest", MAX_THREADS, MAX_WAITING);
        let (state, jobs) = (Mutex::default(), StepJobs::default());
        Self { state, jobs, queue }
    }
}

impl Digests {
    /// Returns a known digest of a file in this version, by the first of these algorithms that has
    /// one.
    pub(crate) fn get(&self, version: &Version, algorithms: &[Algorithm]) -> Option<Digest> {
        let state = lock(&self.state);
        let (known, digests) = state.known.get(&version.inode())?;
        (known == version).then(|| pick(digests, algorithms)).flatten()
    }

    /// Remembers digests of a file, such as one that was uploaded, and stores them with it. It may
    /// wait for a disk.
    pub(crate) fn remember(&self, file: &OwnedFd, version: Version, digests: &[Digest]) {
        lock(&self.state).learn(version, digests);
        // If nothing can be stored, the digests stay in memory only.
        if let Ok(Some(now)) = stored::store(file, &version, digests) {
            lock(&self.state).learn(now, digests);
        }
    }
}

impl KnownDigests {
    /// Remembers digests of a version in addition to those known already.
    fn learn(&mut self, version: Version, digests: &[Digest]) {
        if self.known.len() >= MAX_KNOWN {
            // Any half may go: its digests can be computed again.
            let mut index = 0;
            self.known.retain(|_, _| {
                index += 1;
                index % 2 == 0
            });
        }
        let known = self.known.entry(version.inode()).or_insert((version, Vec::new()));
        if known.0 != version {
            *known = (version, Vec::new());
        }
        for digest in digests {
            known.1.retain(|one| one.algorithm() != digest.algorithm());
            known.1.push(digest.clone());
        }
    }
}

/// Returns the digest of the first of these algorithms that has one.
pub(crate) fn pick(digests: &[Digest], algorithms: &[Algorithm]) -> Option<Digest> {
    let of = |algorithm: &Algorithm| digests.iter().find(|one| one.algorithm() == *algorithm);
    algorithms.iter().find_map(of).cloned()
}

/// The maximum number of files read at once: two disks, or a large file and small ones.
const MAX_THREADS: usize = 2;

/// The maximum number of files that wait to be read.
const MAX_WAITING: usize = 1024;

/// The maximum number of files whose digests are remembered: some 3 MiB.
const MAX_KNOWN: usize = 16_384;
