//! The guard of one file while it is moved.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::fstat;
use rustix::io::Errno;

use super::lease::Lease;
use super::version::Version;
use super::{Integrity, snapshot};

/// The guard of one file of a transfer.
#[derive(Debug)]
pub(crate) enum Guard {
    /// Nothing is checked.
    None,
    /// The version to compare with at the end.
    Detect(Version),
    /// The lease held on the file.
    Lease(Lease),
    /// The clone that is read instead of the file.
    Snapshot(Arc<OwnedFd>),
}

impl Guard {
    /// Sets up the guard for one regular file, or returns why it is unavailable.
    pub(crate) fn new(
        level: Integrity,
        file: BorrowedFd<'_>,
        version: Option<Version>,
    ) -> Result<Self, Errno> {
        Ok(match level {
            Integrity::Fast => Self::None,
            Integrity::Detect => Self::Detect(
                version.map_or_else(|| fstat(file).map(|s| Version::from_stat(&s)), Ok)?,
            ),
            Integrity::Lease => Self::Lease(Lease::acquire(file, version)?),
            Integrity::Snapshot => Self::Snapshot(Arc::new(snapshot::clone_of(file, version)?)),
        })
    }

    /// Returns whether the file is unchanged; only a guard that compares can tell.
    fn holds(&self, current: impl FnOnce() -> io::Result<Version>) -> bool {
        match self {
            Self::Detect(before) => current().is_ok_and(|after| !after.differs_from(before)),
            _ => true,
        }
    }

    /// Returns whether the file is unchanged and, if requested, still under its name: neither
    /// replaced, renamed nor removed.
    pub(crate) fn holds_in_place(
        &self,
        current: impl FnOnce() -> io::Result<Version>,
        is_in_place: bool,
    ) -> bool {
        match self {
            Self::Detect(before) if is_in_place => current().is_ok_and(|after| after == *before),
            _ => self.holds(current),
        }
    }

    /// Stops comparing, because no reference to the file's pages remains. A lease is kept: it
    /// guards the other parts of the file too.
    pub(crate) fn release(&mut self) {
        if let Self::Detect(_) = self {
            *self = Self::None;
        }
    }
}
