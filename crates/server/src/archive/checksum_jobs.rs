//! The checksums of large files that are being made.

use std::sync::Arc;

use super::checksum::ChecksumResult;
use super::checksums::ChecksumKey;
use crate::server::limits::batches::Batches;
use crate::server::limits::disk_queue::DiskQueue;

/// The checksums that are being made, each once for all archives that need it.
#[derive(Debug)]
pub(crate) struct ChecksumJobs {
    pub(super) queue: Arc<DiskQueue>,
    pub(super) batches: Batches<ChecksumKey, ChecksumResult>,
}

impl Default for ChecksumJobs {
    fn default() -> Self {
        // A connection has one job at a time, so the number of connections limits the queue.
        Self { queue: DiskQueue::new("checksum", THREADS, 0), batches: Batches::default() }
    }
}

/// The number of files that are read at once: two disks, or a large file and small ones.
const THREADS: usize = 2;
