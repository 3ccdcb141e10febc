//! What is asked of a download, and what can be seen of it while it runs.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use underpass_engine::Policy;

use super::error::DownloadError;
use crate::digest::{Algorithm, Digest};

/// How files are to be fetched.
#[derive(Clone, Debug)]
pub struct DownloadOptions {
    /// Connections at the most; `None` for as many as the size is worth.
    pub connections: Option<u32>,
    /// How often one attempt after the other may fail before all is given up.
    pub retries: u32,
    /// Bytes per second at the most.
    pub rate: Option<u64>,
    /// Which mechanisms may move the bytes.
    pub policy: Policy,
    /// Bytes asked for in one system call, instead of the mechanism's own default.
    pub step: Option<usize>,
    /// Whether a file gets the time that the server says it was changed.
    pub keep_time: bool,
    /// Whether a file has to be on the disk before it gets its name.
    pub durable: bool,
    /// What the file has to be, by its digests.
    pub expected: Vec<Digest>,
    /// Digests that are only to be told.
    pub shown: Vec<Algorithm>,
    /// Whether the server has to say a digest, which the file has to have.
    pub verify: bool,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        Self {
            connections: None,
            retries: 8,
            rate: None,
            policy: Policy::Auto,
            step: None,
            keep_time: true,
            durable: false,
            expected: Vec::new(),
            shown: Vec::new(),
            verify: false,
        }
    }
}

/// What becomes of a file that has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// It stays, and the download fails.
    Refuse,
    /// If it is as long and as old as what the server has it is taken for the same, and nothing is
    /// fetched; otherwise it stays and the download fails.
    SameIsFine,
    /// It is replaced in one moment, once the new one is whole.
    Replace,
}

/// Where a download goes.
#[derive(Clone, Copy, Debug)]
pub enum Target<'t> {
    /// A file that appears under its name when it is whole.
    Named {
        /// The folder.
        folder: &'t OwnedFd,
        /// The name in it.
        name: &'t OsStr,
        /// What becomes of a file that has the name already.
        if_exists: IfExists,
    },
    /// Something that takes the bytes as they come, such as a pipe or a device.
    Stream {
        /// What that is.
        file: &'t File,
        /// Where to begin, if it has places.
        at: u64,
    },
}

/// How far a download has come, to be looked at by others while it runs.
#[derive(Debug, Default)]
pub struct Gauge {
    pub(super) done: AtomicU64,
    /// One more than the bytes in all; 0 as long as that is unknown.
    total: AtomicU64,
    pub(super) connections: AtomicU32,
    pub(super) is_checking: AtomicBool,
}

impl Gauge {
    /// So many bytes are there, of so many.
    pub(super) fn set(&self, done: u64, total: Option<u64>) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total.map_or(0, |total| total.saturating_add(1)), Ordering::Relaxed);
    }

    /// Bytes that are in their place, those of earlier attempts among them.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Bytes in all, once that is known.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Whether all bytes are here, and are read for their digest.
    #[must_use]
    pub fn is_checking(&self) -> bool {
        self.is_checking.load(Ordering::Relaxed)
    }

    /// Connections at work.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Something worth telling about a download that goes on.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'e> {
    /// An attempt failed; the next follows after a while.
    Retrying {
        /// Why it failed.
        error: &'e DownloadError,
        /// How long the while is.
        after: Duration,
    },
    /// The server has another version now: what was there is thrown away.
    StartingOver,
    /// There was a beginning from an earlier run, which is gone on with.
    Resuming {
        /// Bytes that were there.
        have: u64,
        /// Bytes in all.
        total: Option<u64>,
    },
}
