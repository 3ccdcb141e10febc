//! Files that somebody may be writing to: found at rest before they are sent, or not sent.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{SeekFrom, Stat, seek};
use rustix::io::Errno;
use underpass_engine::{Integrity, Version, WriterCheck, Writers};

use crate::files::root::Patience;

/// The version that a file was found in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) version: Version,
    /// Whether somebody has it open for writing.
    pub(crate) has_writer: bool,
    /// Whether each change from now on changes its times.
    pub(crate) is_at_rest: bool,
}

/// What has to be found out about files before they are sent, for as long as one path is being
/// opened.
#[derive(Debug)]
pub(crate) struct Checks {
    level: Integrity,
    /// What was seen so far of files that somebody may be writing to.
    begun: Vec<(Box<[u8]>, WriterCheck)>,
    /// When to open the path once more, after [`AGAIN_LATER`].
    pub(crate) pause: Duration,
}

impl Checks {
    /// Nothing is known yet.
    pub(crate) fn new(level: Integrity) -> Self {
        Self { level, begun: Vec::new(), pause: Duration::ZERO }
    }

    /// The version that a file is in, from which each change can be told.
    pub(crate) fn settle(
        &mut self,
        at_rest: &AtRest,
        path: &[u8],
        file: &OwnedFd,
        stat: &Stat,
        patience: Patience,
    ) -> Result<Settled, Errno> {
        let version = Version::from_stat(stat);
        if self.compares() && at_rest.has(&version) {
            return Ok(Settled { version, has_writer: true, is_at_rest: true });
        }
        if patience == Patience::None && WriterCheck::is_recent(&version) {
            return Err(Errno::AGAIN);
        }
        if !self.compares() {
            wait_for_writer(file, &version);
            return Ok(Settled { version, has_writer: false, is_at_rest: false });
        }
        let known = self.begun.iter().position(|(begun, _)| **begun == *path);
        let index = known.unwrap_or_else(|| {
            self.begun.push((path.into(), WriterCheck::new()));
            self.begun.len() - 1
        });
        let look = self.begun[index].1.look(file, Some(version));
        match look.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))? {
            Writers::AtRest { version, has_writer } => {
                if has_writer {
                    at_rest.note(version);
                }
                Ok(Settled { version, has_writer, is_at_rest: true })
            }
            Writers::Wait(pause) => {
                self.pause = pause;
                Err(AGAIN_LATER)
            }
            Writers::Busy => Err(Errno::BUSY),
        }
    }

    /// Whether versions are compared. A snapshot is of one moment, whoever writes.
    fn compares(&self) -> bool {
        matches!(self.level, Integrity::Detect | Integrity::Lease)
    }
}

/// Versions of files that were found at rest although they are open for writing. A file stays so
/// as long as it is in that version, so that nobody has to wait for it again.
#[derive(Debug, Default)]
pub(crate) struct AtRest(Mutex<HashMap<u64, Version>>);

impl AtRest {
    fn has(&self, version: &Version) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&version.inode()) == Some(version)
    }

    fn note(&self, version: Version) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(version.inode(), version);
    }
}

/// Waits for the end of a write(2) that is going on.
///
/// A write changes the times of a file before its bytes, so that one that had begun when the facts
/// were read would go unnoticed. Looking for data takes the lock that a write holds: what begins
/// afterwards changes the times again. Only files that were changed lately can be in the middle
/// of one.
fn wait_for_writer(file: &OwnedFd, version: &Version) {
    if WriterCheck::is_recent(version) {
        // At the last byte: nothing is searched. No answer to the question is of interest.
        let _ = seek(file, SeekFrom::Data(version.size().saturating_sub(1)));
    }
}

/// Why a file was not opened that has to be left alone for a moment by whoever may be writing to it.
pub(crate) const AGAIN_LATER: Errno = Errno::INPROGRESS;

/// Versions that are remembered at the most; the others are found at rest once more.
const MAX_KNOWN: usize = 1024;
