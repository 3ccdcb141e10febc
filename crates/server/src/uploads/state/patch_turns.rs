//! The order in which changes of one file are made.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard};

use rustix::fs::fstat;
use rustix::io::Errno;
use underpass_engine::FileId;
use underpass_engine::wait::lock;

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
        let folder = FileId::of(&fstat(&target.folder)?);
        let hash = self.hasher.hash_one((folder, &target.name));
        Ok(lock(&self.locks[usize::try_from(hash % LOCKS as u64).unwrap_or(0)]))
    }
}

/// The number of locks.
const LOCKS: usize = 32;
