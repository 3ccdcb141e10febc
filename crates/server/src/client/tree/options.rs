//! How folders are to be fetched, and what is reported while they are.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use underpass_engine::Policy;

use super::error::{TreeError, TreeWay};

/// How folders are to be fetched.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// Connections at the most, for a folder that comes file by file.
    pub connections: u32,
    /// How often one attempt after the other may fail before all is given up.
    pub retries: u32,
    /// Which mechanisms may move the bytes.
    pub policy: Policy,
    /// Bytes asked for in one system call, instead of the mechanism's own default.
    pub step: Option<usize>,
    /// Whether files that are here and others are replaced.
    pub replaces: bool,
    /// Whether the server is asked for an archive first.
    pub archive: bool,
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
        }
    }
}

/// How far a folder has come, to be looked at by others meanwhile.
#[derive(Debug, Default)]
pub struct TreeGauge {
    pub(super) files: AtomicU64,
    pub(super) done: AtomicU64,
    /// One more than the bytes in all; 0 as long as that is unknown.
    pub(super) total: AtomicU64,
}

impl TreeGauge {
    /// Files that are here.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Bytes that are here: of the archive, if it is one.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Bytes in all, if that is known.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Something worth telling about a folder that is being fetched.
#[derive(Debug)]
#[non_exhaustive]
pub enum TreeEvent<'e> {
    /// It comes in this way.
    Begun(TreeWay),
    /// Something is not made; all else is.
    LeftOut {
        /// Its path, or its address if it has no path.
        path: &'e [u8],
        /// Why.
        reason: &'e dyn Reason,
    },
    /// There was a beginning from an earlier run, which is gone on with.
    Resuming {
        /// Bytes of the archive that are here.
        have: u64,
        /// Bytes in all.
        total: u64,
    },
    /// An attempt failed; the next follows after a while.
    Retrying {
        /// Why it failed.
        error: &'e TreeError,
        /// How long the while is.
        after: Duration,
    },
    /// The server's folder is another one now.
    StartingOver,
}

/// A reason that can be told.
pub trait Reason: fmt::Display + fmt::Debug {}

impl<T: fmt::Display + fmt::Debug> Reason for T {}

/// Who is told of what happens.
pub type Tell<'t> = &'t (dyn Fn(&TreeEvent<'_>) + Sync);
