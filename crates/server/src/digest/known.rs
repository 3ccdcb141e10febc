//! Digests of the served files: made once on request, by threads of their own, and remembered in
//! memory and with the file.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use underpass_engine::Version;
use underpass_engine::wait::lock;

use crate::digest::jobs::DigestJob;
use crate::digest::stored;
use crate::server::limits::disk_queue::DiskQueue;
use underpass_protocol::digest::{Algorithm, Digest};

/// The digests that all workers share.
#[derive(Debug)]
pub(crate) struct Digests {
    pub(super) state: Mutex<KnownDigests>,
    /// The steps of the jobs.
    pub(super) queue: Arc<DiskQueue>,
    /// The number of digests that wait to be stored, readable without the lock; mostly there are
    /// none.
    unkept: AtomicUsize,
}

/// The known digests, the jobs and the transfers.
#[derive(Debug, Default)]
pub(crate) struct KnownDigests {
    /// The digests by inode; the version tells files of two file systems apart.
    known: HashMap<u64, (Version, Vec<Digest>)>,
    /// The digests that wait to be made or are being made.
    pub(super) jobs: Vec<Arc<DigestJob>>,
    /// The number of transfers of each file, by inode: for two files with the same inode number the
    /// count is too high, which only delays storing.
    transfers: HashMap<u64, usize>,
    /// The number of transfers of archives, each of many files.
    archives: usize,
    /// The digests to store with their file once no transfer of it is under way.
    unkept: Vec<UnstoredDigests>,
}

/// Digests that are known and not stored with their file yet.
#[derive(Debug)]
struct UnstoredDigests {
    file: Arc<OwnedFd>,
    version: Version,
    digests: Vec<Digest>,
}

impl Default for Digests {
    fn default() -> Self {
        let queue = DiskQueue::new("digest", MAX_THREADS, MAX_WAITING);
        Self { state: Mutex::default(), queue, unkept: AtomicUsize::default() }
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
    pub(crate) fn remember(&self, file: Arc<OwnedFd>, version: Version, digests: Vec<Digest>) {
        lock(&self.state).learn(version, &digests);
        self.store(UnstoredDigests { file, version, digests });
    }

    /// Registers a transfer of a file until the returned value is dropped: no attribute is set on
    /// the file meanwhile, because that would look like a change.
    pub(crate) fn transfer(&self, version: &Version) -> WatchedTransfer<'_> {
        *lock(&self.state).transfers.entry(version.inode()).or_default() += 1;
        WatchedTransfer { digests: self, inode: Some(version.inode()) }
    }

    /// Registers a transfer of an archive, which may have any file in it.
    pub(crate) fn archive(&self) -> WatchedTransfer<'_> {
        lock(&self.state).archives += 1;
        WatchedTransfer { digests: self, inode: None }
    }

    /// Returns whether [`store_pending`](Self::store_pending) has anything to do.
    pub(crate) fn has_unkept(&self) -> bool {
        self.unkept.load(Ordering::Relaxed) > 0
    }

    /// Stores the digests that could not be stored with their files because of transfers. It may
    /// wait for a disk.
    pub(crate) fn store_pending(&self) {
        let unkept = std::mem::take(&mut lock(&self.state).unkept);
        self.unkept.fetch_sub(unkept.len(), Ordering::Relaxed);
        unkept.into_iter().for_each(|unkept| self.store(unkept));
    }

    /// Stores digests with their file, now if no transfer of it is under way.
    fn store(&self, unkept: UnstoredDigests) {
        let mut state = lock(&self.state);
        if state.is_in_transfer(&unkept.version) {
            if state.unkept.len() < MAX_UNKEPT && unkept.version.links() > 0 {
                state.unkept.push(unkept);
                self.unkept.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        drop(state);
        // A transfer that begins at this moment has a version that is not current, and may have to
        // go on with the new one, which has the same tag. If nothing can be stored, the digests
        // stay in memory only.
        if let Ok(Some(now)) = stored::store(&unkept.file, &unkept.version, &unkept.digests) {
            lock(&self.state).learn(now, &unkept.digests);
        }
    }
}

impl KnownDigests {
    /// Remembers digests of a version in addition to those known already.
    fn learn(&mut self, version: Version, digests: &[Digest]) {
        if self.known.len() >= MAX_KNOWN {
            // It does not matter which ones go: they can be made again.
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

    fn is_in_transfer(&self, version: &Version) -> bool {
        self.archives > 0 || self.transfers.contains_key(&version.inode())
    }
}

/// A transfer under way.
#[derive(Debug)]
pub(crate) struct WatchedTransfer<'a> {
    digests: &'a Digests,
    /// The inode of the file; `None` for many files.
    inode: Option<u64>,
}

impl Drop for WatchedTransfer<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.digests.state);
        let Some(inode) = self.inode else {
            state.archives -= 1;
            return;
        };
        if let Some(count) = state.transfers.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                state.transfers.remove(&inode);
            }
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

/// The maximum number of files kept open until their digests can be stored with them.
const MAX_UNKEPT: usize = 64;
