//! The checksums of large files that are being made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use underpass_engine::wait::lock;

use super::checksum::ChecksumResult;
use super::checksums::ChecksumKey;
use crate::server::limits::disk_queue::DiskQueue;

/// The checksums that are being made, each once for all archives that need it.
#[derive(Debug)]
pub(crate) struct ChecksumJobs {
    pub(super) queue: Arc<DiskQueue>,
    pub(super) waiters: Mutex<HashMap<ChecksumKey, Vec<oneshot::Sender<ChecksumResult>>>>,
}

impl Default for ChecksumJobs {
    fn default() -> Self {
        // A connection has one job at a time, so the number of connections limits the queue.
        Self { queue: DiskQueue::new("checksum", THREADS, 0), waiters: Mutex::default() }
    }
}

impl ChecksumJobs {
    /// Returns whether a client still waits for a checksum; forgets it otherwise.
    pub(super) fn is_wanted(&self, key: ChecksumKey) -> bool {
        let mut all = lock(&self.waiters);
        let Some(waiters) = all.get_mut(&key) else { return false };
        waiters.retain(|waiter| !waiter.is_closed());
        let is_wanted = !waiters.is_empty();
        if !is_wanted {
            all.remove(&key);
        }
        is_wanted
    }
}

/// The number of files that are read at once: two disks, or a large file and small ones.
const THREADS: usize = 2;
