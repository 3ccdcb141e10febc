//! Options, progress and events of fetching a folder.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use underpass_engine::Policy;
use url::Url;

use super::error::TreeError;

/// Options of fetching folders.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// The maximum number of connections for listings.
    pub connections: u32,
    /// The number of consecutive failures after which the download is given up.
    pub retries: u32,
    /// The mechanisms that may move the bytes.
    pub policy: Policy,
    /// Bytes per system call, instead of the mechanism's own default.
    pub step: Option<usize>,
    /// Whether existing files that differ are replaced.
    pub replaces: bool,
    /// Whether an archive is requested first. It contains everything, so `filter` and `deletes`
    /// apply to listings only.
    pub archive: bool,
    /// The maximum rate in bytes per second, of all connections together.
    pub rate: Option<u64>,
    /// Which files and folders are fetched; by default all.
    pub filter: Option<PathFilter>,
    /// Whether unlisted local entries are removed, after all listings were read.
    pub deletes: bool,
    /// The maximum number of files and folders to remove: if there are more, none is removed.
    pub max_delete: Option<u64>,
    /// The URL of the bucket, if the server is an object store.
    pub bucket: Option<Url>,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            connections: 4,
            retries: 8,
            policy: Policy::Auto,
            step: None,
            replaces: false,
            archive: true,
            rate: None,
            filter: None,
            deletes: false,
            max_delete: None,
            bucket: None,
        }
    }
}

/// Decides which paths are fetched, and which local ones may be removed.
#[derive(Clone)]
pub struct PathFilter(Arc<Wants>);

type Wants = dyn Fn(&[u8], bool) -> bool + Send + Sync;

impl PathFilter {
    /// Creates a filter from a function of a path relative to the folder, and whether it is a
    /// folder's. The contents of a refused folder are refused, too.
    pub fn new(wants: impl Fn(&[u8], bool) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(wants))
    }
}

impl fmt::Debug for PathFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathFilter")
    }
}

impl TreeOptions {
    /// Returns whether a path is fetched, whose first `known` bytes are a folder that is fetched.
    pub(super) fn wants(&self, path: &[u8], known: usize, is_folder: bool) -> bool {
        let Some(PathFilter(wants)) = &self.filter else { return true };
        let slashes = (known + 1..path.len()).filter(|at| path[*at] == b'/');
        slashes.into_iter().all(|at| wants(&path[..at], true)) && wants(path, is_folder)
    }
}

/// The progress of a folder, which other threads may read.
#[derive(Debug, Default)]
pub struct TreeGauge {
    pub(super) files: AtomicU64,
    pub(super) done: AtomicU64,
    pub(super) before: AtomicU64,
    /// One more than the total, in bytes; 0 while that is unknown.
    pub(super) total: AtomicU64,
}

impl TreeGauge {
    /// Returns the number of files fetched or found so far.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Returns the bytes fetched or found so far; of an archive, its unpacked bytes.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns how many of these bytes are from earlier runs.
    #[must_use]
    pub fn before(&self) -> u64 {
        self.before.load(Ordering::Relaxed)
    }

    /// Returns the total in bytes, if known.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// An event of fetching a folder.
#[derive(Debug)]
#[non_exhaustive]
pub enum TreeEvent<'e> {
    /// A file, folder or link is left out.
    LeftOut {
        /// Its path, or its URL if it has no path.
        path: &'e [u8],
        /// A short reason.
        reason: &'e str,
    },
    /// A listing is truncated, so entries may be missing.
    ListingCut {
        /// Its URL.
        url: &'e str,
    },
    /// No link of a page is to an entry of the folder.
    LinksElsewhere {
        /// Its URL.
        url: &'e str,
        /// The number of its links.
        count: usize,
    },
    /// The partial file of an earlier run is resumed.
    Resuming {
        /// Bytes of the archive that are unpacked.
        have: u64,
        /// The total in bytes.
        total: u64,
    },
    /// An attempt failed and will be repeated.
    Retrying {
        /// The reason why it failed.
        error: &'e TreeError,
        /// The time until the next attempt.
        after: Duration,
    },
    /// The folder on the server has changed.
    StartingOver,
    /// A file, link or folder was removed, because the server does not list it.
    Removed {
        /// Its path.
        path: &'e [u8],
    },
    /// Nothing is removed, because an entry was left out.
    NothingRemoved,
}

/// The observer of events.
pub type OnTreeEvent<'t> = dyn Fn(&TreeEvent<'_>) + Sync + 't;
