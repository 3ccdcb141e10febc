//! The checksums of large files that are being made.

use std::sync::Arc;

use super::checksum::{ChecksumResult, PartialSum};
use super::checksums::ChecksumKey;
use crate::server::limits::disk_queue::DiskQueue;
use crate::server::limits::step_jobs::StepJobs;

/// The checksums that are being made, each once for all archives that need it.
#[derive(Debug)]
pub(crate) struct ChecksumJobs {
    pub(super) queue: Arc<DiskQueue>,
    pub(super) jobs: StepJobs<ChecksumKey, PartialSum, ChecksumResult>,
}

impl Default for ChecksumJobs {
    fn default() -> Self {
        // A connection has one job at a time, so the number of connections limits the queue.
        Self { queue: DiskQueue::new("checksum", THREADS, 0), jobs: StepJobs::default() }
    }
}

/// The number of files that are read at once: two disks, or a large file and small ones.
const THREADS: usize = 2;
