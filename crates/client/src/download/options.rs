//! Options, progress and events of a download.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use underpass_engine::Policy;
use underpass_protocol::digest::{Algorithm, Digest};
use url::Url;

use super::error::DownloadError;

/// Options of downloads.
#[derive(Clone, Debug)]
pub struct DownloadOptions {
    /// The maximum number of connections; `None` chooses it by the size.
    pub connections: Option<u32>,
    /// The number of consecutive failures after which the download is given up.
    pub retries: u32,
    /// The maximum rate in bytes per second.
    pub rate: Option<u64>,
    /// The mechanisms that may move the bytes.
    pub policy: Policy,
    /// Bytes per system call, instead of the mechanism's own default.
    pub step: Option<usize>,
    /// Whether the file gets the server's modification time.
    pub keep_time: bool,
    /// Whether the file is synced before it gets its name.
    pub durable: bool,
    /// The digests that the file must have.
    pub expected: Vec<Digest>,
    /// The digests that are computed for the report.
    pub shown: Vec<Algorithm>,
    /// Whether the server must send a digest, which the file must match.
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

/// The treatment of an existing file of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// It is kept, and the download fails.
    Refuse,
    /// If it has the size and time of the server's file, nothing is fetched; otherwise it is kept
    /// and the download fails.
    SameIsFine,
    /// It is replaced atomically, once the new file is complete.
    Replace,
    /// It is replaced atomically by a complete file if the server has another version: one with
    /// another entity tag than the existing file was fetched with, or another size or time.
    Update,
}

/// The destination of a download.
#[derive(Clone, Copy, Debug)]
pub enum Target<'t> {
    /// A file that appears under its name when it is complete.
    Named {
        /// The open folder.
        folder: &'t OwnedFd,
        /// The name in the folder.
        name: &'t OsStr,
        /// The treatment of an existing file of the name.
        if_exists: IfExists,
    },
    /// A stream that receives the bytes in order, such as a pipe or a device.
    Stream {
        /// The stream.
        file: &'t File,
        /// The offset to start at, if it is seekable.
        at: u64,
    },
}

impl Target<'_> {
    /// Opens the fetched file; a stream cannot be read again.
    pub(super) fn open(&self) -> Result<File, Errno> {
        let Self::Named { folder, name, .. } = self else { return Err(Errno::SPIPE) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(folder, *name, flags, Mode::empty()).map(File::from)
    }
}

/// The progress of a download, which other threads may read while it runs.
#[derive(Debug, Default)]
pub struct Gauge {
    pub(super) done: AtomicU64,
    before: AtomicU64,
    /// One more than the total, in bytes; 0 while that is unknown.
    total: AtomicU64,
    pub(super) connections: AtomicU32,
    pub(super) is_checking: AtomicBool,
}

impl Gauge {
    /// Sets the bytes that have arrived and the total.
    pub(super) fn set(&self, done: u64, total: Option<u64>) {
        // In this order, so that a reader of the new count also sees the count at its beginning.
        self.before.store(done, Ordering::Release);
        self.done.store(done, Ordering::Release);
        self.total.store(total.map_or(0, |total| total.saturating_add(1)), Ordering::Relaxed);
    }

    /// Returns the bytes that have arrived, including those of earlier attempts.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Returns the bytes that had arrived when the current round of requests began, in earlier runs
    /// and attempts. Read it after [`done`](Self::done).
    #[must_use]
    pub fn before(&self) -> u64 {
        self.before.load(Ordering::Acquire)
    }

    /// Returns the total in bytes, once it is known.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Returns whether the file is complete and its digest is being computed.
    #[must_use]
    pub fn is_checking(&self) -> bool {
        self.is_checking.load(Ordering::Relaxed)
    }

    /// Returns the number of connections in use.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// An event of a download.
#[derive(Debug)]
#[non_exhaustive]
pub enum DownloadEvent<'e> {
    /// An attempt failed and will be repeated.
    Retrying {
        /// The reason why it failed.
        error: &'e DownloadError,
        /// The time until the next attempt.
        after: Duration,
    },
    /// One of several servers failed or has another file, and is no longer used.
    SourceDropped {
        /// Its URL.
        url: &'e Url,
        /// The error that ended its use.
        error: &'e DownloadError,
    },
    /// The combined bytes of several servers do not have the digest: each server is now tried
    /// alone.
    SourcesDisagree,
    /// The file has parts of several servers with the same entity tag, but no digest was compared.
    OnlyTagsCompared,
    /// The URL may be that of a folder, and the file its HTML page.
    Folder,
    /// The partial file or its journal is not needed any more, but cannot be removed.
    NotRemoved {
        /// Its name.
        name: &'e OsStr,
        /// The system's error.
        error: &'e io::Error,
    },
    /// The file on the server has changed, or the server no longer sends parts of it: the download
    /// starts over.
    StartingOver {
        /// Tells which of the two happened.
        error: &'e DownloadError,
    },
    /// The partial file of an earlier run is resumed.
    Resuming {
        /// The bytes in it.
        have: u64,
        /// The total in bytes.
        total: Option<u64>,
    },
}
