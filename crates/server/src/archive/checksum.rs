//! The CRC-32 of one file.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use underpass_engine::Version;
use underpass_protocol::FileVersion;
use underpass_transport::digest::{ComputeError, crc32};

use super::checksums::ChecksumKey;
use super::error::ArchiveError;
use crate::digest::settle::wait_for_writes;
use crate::files::version::engine_version;
use crate::server::limits::disk_queue::{DiskQueue, SLICE, SLICE_TIME};
use crate::server::limits::priority::{Work, let_others_run};
use crate::server::limits::step_jobs::StepJobs;

/// The CRC-32 of a large file, which the next chain of an archive needs.
#[derive(Clone, Debug)]
pub struct ChecksumRequest {
    /// The path of the file relative to the archived folder.
    pub path: Vec<u8>,
    /// The open file.
    pub file: Arc<OwnedFd>,
    /// The file as it was when the archive was laid out.
    pub version: FileVersion,
}

/// The result for a file.
pub(crate) type ChecksumResult = Result<u32, ChecksumError>;

/// The reason why there is no checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChecksumError {
    /// The file is no longer in this version.
    Changed,
    /// The file cannot be read.
    Unreadable(io::ErrorKind),
}

impl ChecksumError {
    /// Returns the error about a file of the archive.
    pub(crate) fn of(self, path: &[u8]) -> ArchiveError {
        match self {
            Self::Changed => ArchiveError::Changed { path: path.to_vec() },
            Self::Unreadable(kind) => ArchiveError::io(path, kind),
        }
    }
}

/// The CRC-32 of the first bytes of a file.
pub(super) struct PartialSum {
    file: Arc<OwnedFd>,
    pub(super) version: FileVersion,
    checksum: u32,
    /// The number of bytes that were read.
    pub(super) at: u64,
}

impl PartialSum {
    /// Begins with the first byte of a file.
    pub(super) fn new(file: Arc<OwnedFd>, version: FileVersion) -> Self {
        Self { file, version, checksum: 0, at: 0 }
    }

    /// Reads a slice; returns the result if that was the last one. It may wait for the disk.
    pub(super) fn read_slice(&mut self) -> Option<ChecksumResult> {
        let version = engine_version(&self.version);
        if self.at == 0 {
            wait_for_writes(&self.file, &version);
        }
        let (range, began) = (self.at..self.version.size.min(self.at + SLICE), Instant::now());
        let mut read_bytes = 0;
        let outcome = crc32(&mut self.checksum, &self.file, range, |read| {
            let_others_run(Work::Buffer);
            read_bytes = read;
            began.elapsed() < SLICE_TIME
        });
        self.at += read_bytes;
        if Version::of(&self.file).is_ok_and(|now| version.differs_from(&now)) {
            return Some(Err(ChecksumError::Changed));
        }
        if let Err(ComputeError::Io(error)) = outcome {
            return Some(Err(ChecksumError::Unreadable(error.kind())));
        }
        (self.at == self.version.size).then_some(Ok(self.checksum))
    }

    /// Reads the rest of the file.
    pub(super) fn finish(mut self) -> ChecksumResult {
        loop {
            if let Some(result) = self.read_slice() {
                return result;
            }
        }
    }
}

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
