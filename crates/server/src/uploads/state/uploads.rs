//! The state that the uploads of all workers share.

use std::ffi::OsString;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use underpass_engine::{FileId, PipePool};

use crate::uploads::state::keyed_locks::KeyedLocks;
use crate::uploads::state::locks::UploadLocks;
use crate::uploads::state::part_versions::PartVersions;
use crate::uploads::state::slots::Slots;
use crate::uploads::state::sync_tracker::SyncTracker;
use crate::uploads::state::threads::UploadThreads;

/// The state that the uploads of all workers share.
#[derive(Debug)]
pub(crate) struct Uploads {
    pub(crate) slots: Arc<Slots>,
    pub(crate) threads: UploadThreads,
    pub(crate) locks: UploadLocks,
    /// Held while space is reserved, by the device of the file system.
    pub(crate) reserving: KeyedLocks<u64>,
    pub(crate) pipes: PipePool,
    /// Held while a file is changed, by its folder and name.
    pub(crate) turns: KeyedLocks<(FileId, OsString)>,
    /// The versions of the files that parts belong to.
    pub(crate) versions: PartVersions,
    /// How much of each part is on the disk.
    pub(crate) synced: SyncTracker,
}

impl Uploads {
    /// Creates the state without uploads. It must be called before the server is confined.
    pub(crate) fn new() -> Self {
        let slots = Slots::new(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
        Self {
            threads: UploadThreads::new(slots.max),
            slots: Arc::new(slots),
            locks: UploadLocks::default(),
            reserving: KeyedLocks::default(),
            pipes: PipePool::default(),
            turns: KeyedLocks::default(),
            versions: PartVersions::default(),
            synced: SyncTracker::new(),
        }
    }
}
