//! The order in which changes of one file are made.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::fstat;
use rustix::io::Errno;

use crate::uploads::parts::target::UploadTarget;

/// The order in which changes of one file are made, one after the other. Some files share a lock,
/// so that there is a fixed number of them.
#[derive(Debug, Default)]
pub(crate) struct PatchTurns {
    locks: [Mutex<()>; LOCKS],
    hasher: RandomState,
}

impl PatchTurns {
    /// Waits until no other change of the file is made, for as long as the returned value lives.
    pub(crate) fn wait(&self, target: &UploadTarget) -> Result<MutexGuard<'_, ()>, Errno> {
        let folder = fstat(&target.folder)?;
        let hash = self.hasher.hash_one((folder.st_dev, folder.st_ino, &target.name));
        let lock = &self.locks[usize::try_from(hash % LOCKS as u64).unwrap_or(0)];
        Ok(lock.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The number of locks.
const LOCKS: usize = 32;
