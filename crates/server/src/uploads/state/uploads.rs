//! The state that the uploads of all workers share.

use std::sync::{Arc, Mutex};

use rustix::process::{Resource, getrlimit};
use underpass_engine::PipePool;

use crate::uploads::state::locks::UploadLocks;
use crate::uploads::state::part_versions::PartVersions;
use crate::uploads::state::patch_turns::PatchTurns;
use crate::uploads::state::slots::Slots;
use crate::uploads::state::sync_tracker::SyncTracker;
use crate::uploads::state::threads::UploadThreads;

/// The state that the uploads of all workers share.
#[derive(Debug)]
pub(crate) struct Uploads {
    pub(crate) slots: Arc<Slots>,
    pub(crate) threads: UploadThreads,
    pub(crate) locks: UploadLocks,
    /// Held while space is reserved.
    pub(crate) reserving: Mutex<()>,
    pub(crate) pipes: PipePool,
    /// The order in which changes of one file are made.
    pub(crate) turns: PatchTurns,
    /// Tells of which version of a file a part is.
    pub(crate) versions: PartVersions,
    /// Tells how much of a part is on the disk.
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
            reserving: Mutex::default(),
            pipes: PipePool::default(),
            turns: PatchTurns::default(),
            versions: PartVersions::default(),
            synced: SyncTracker::new(),
        }
    }
}
