//! Digests of the files that are served: made when somebody asks, once, by threads of their own,
//! and remembered, in memory and with the file.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use underpass_engine::Version;

use crate::digest::jobs::Jobs;
use crate::digest::{Algorithm, Digest, kept};

/// What all workers know of digests.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    state: Mutex<KnownDigests>,
    /// How many digests wait to be kept, to be looked at without the lock: mostly there are none.
    unkept: AtomicUsize,
}

/// What is known, being made and being sent.
#[derive(Debug, Default)]
pub(crate) struct KnownDigests {
    /// By inode; the version tells files of two file systems apart.
    known: HashMap<u64, (Version, Vec<Digest>)>,
    pub(crate) jobs: Jobs,
    /// How many transfers there are of each file, by inode: of two with one number the count is
    /// too high, and only delays something.
    transfers: HashMap<u64, usize>,
    /// Transfers of many files each.
    archives: usize,
    /// Digests to be kept with their file when no transfer of it is under way.
    unkept: Vec<Unkept>,
}

/// Digests that are known and not kept with their file yet.
#[derive(Debug)]
struct Unkept {
    file: Arc<OwnedFd>,
    version: Version,
    digests: Vec<Digest>,
}

impl Digests {
    /// The digest of a file in this version that is known of these, the dearest first.
    pub(crate) fn get(&self, version: &Version, algorithms: &[Algorithm]) -> Option<Digest> {
        let state = self.lock();
        let (known, digests) = state.known.get(&version.inode())?;
        (known == version).then(|| pick(digests, algorithms)).flatten()
    }

    /// Remembers digests of a file that has arrived, say, and keeps them with it. May wait for a
    /// disk.
    pub(crate) fn remember(&self, file: Arc<OwnedFd>, version: Version, digests: Vec<Digest>) {
        self.lock().learn(version, &digests);
        self.keep(Unkept { file, version, digests });
    }

    /// Notes a transfer of a file for as long as what is returned lives: nothing is set on the
    /// file meanwhile, which would look like a change of it.
    pub(crate) fn transfer(&self, version: &Version) -> Transfer<'_> {
        *self.lock().transfers.entry(version.inode()).or_default() += 1;
        Transfer { digests: self, inode: Some(version.inode()) }
    }

    /// The same for an archive, which may have any file in it.
    pub(crate) fn archive(&self) -> Transfer<'_> {
        self.lock().archives += 1;
        Transfer { digests: self, inode: None }
    }

    /// Whether there is something that [`keep_all`](Self::keep_all) could do.
    pub(crate) fn has_unkept(&self) -> bool {
        self.unkept.load(Ordering::Relaxed) > 0
    }

    /// Keeps the digests with their files that could not be kept because of transfers. May wait
    /// for a disk.
    pub(crate) fn keep_all(&self) {
        let unkept = std::mem::take(&mut self.lock().unkept);
        self.unkept.fetch_sub(unkept.len(), Ordering::Relaxed);
        unkept.into_iter().for_each(|unkept| self.keep(unkept));
    }

    /// Keeps digests with their file, now if no transfer of it is under way.
    fn keep(&self, unkept: Unkept) {
        let mut state = self.lock();
        if state.is_in_transfer(&unkept.version) {
            if state.unkept.len() < MAX_UNKEPT && unkept.version.links() > 0 {
                state.unkept.push(unkept);
                self.unkept.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        drop(state);
        // Whoever begins a transfer in this moment has a version that is not current, and may have
        // to go on with the new one, which has the same tag. Where nothing can be kept, memory has
        // to do.
        if let Ok(Some(now)) = kept::store(&unkept.file, &unkept.version, &unkept.digests) {
            self.lock().learn(now, &unkept.digests);
        }
    }

    /// Locks even if another thread has panicked: no entry is ever half-written.
    pub(crate) fn lock(&self) -> MutexGuard<'_, KnownDigests> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownDigests {
    /// Remembers digests of a version, beside those of it that are known already.
    fn learn(&mut self, version: Version, digests: &[Digest]) {
        if self.known.len() >= MAX_KNOWN {
            // Which ones go is of no importance: they can be made again.
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

/// A transfer that is under way.
#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    digests: &'a Digests,
    /// Of the file; none if it is of many.
    inode: Option<u64>,
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        let mut state = self.digests.lock();
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

/// The first of these algorithms of which there is a digest.
pub(crate) fn pick(digests: &[Digest], algorithms: &[Algorithm]) -> Option<Digest> {
    let of = |algorithm: &Algorithm| digests.iter().find(|one| one.algorithm() == *algorithm);
    algorithms.iter().find_map(of).cloned()
}

/// Files whose digests are remembered at the most: some 3 MiB.
const MAX_KNOWN: usize = 16_384;

/// Files that are kept open until their digests can be kept with them.
const MAX_UNKEPT: usize = 64;
