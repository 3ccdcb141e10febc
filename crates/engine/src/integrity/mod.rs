//! Levels of certainty that the bytes of a transfer belong to one version of the file.
//!
//! Pages go to a socket by reference, so a file that is written to while it is sent may reach the
//! peer half old, half new. The levels range from trusting the file to preventing writes.

mod guard;
mod kept_time;
mod lease;
pub mod mount_epoch;
mod snapshot;
mod version;
mod writers;

use std::fmt;
use std::str::FromStr;

use rustix::io::Errno;

pub(crate) use guard::Guard;
pub use kept_time::{kept_time, mtime, since_1970, times_of_new};
pub(crate) use lease::LeaseState;
pub(crate) use snapshot::clone_of;
pub use version::{FileId, Version, announce_attribute, birth_time, is_file, is_folder};
pub(crate) use writers::reopen;
pub use writers::{WriterCheck, Writers, await_writes};

use crate::mechanisms::step::DeclineReason;

/// Levels of certainty that the bytes of a transfer belong to one version of the file.
///
/// Streams and files of procfs have only one version; every level accepts them.
///
/// The peer has a byte once its kernel has acknowledged it. If the peer is a pipe or a socket of
/// this machine, which shares the file's pages until they are read, it has the byte once that has
/// been read.
///
/// Two cases on this machine cannot be detected, and only [`Snapshot`](Self::Snapshot) covers them:
/// a reader that takes bytes by splice(2) shares the file's pages until it has passed them on, and
/// a peer in another network namespace or behind address translation cannot be distinguished from
/// one on another machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Integrity {
    /// No check: right for files that are never written in place.
    #[default]
    Fast,
    /// The file's metadata before the first byte and after the last are compared, on a socket or
    /// pipe once the peer has everything; a change makes the transfer fail.
    Detect,
    /// A read lease (fcntl(2), `F_SETLEASE`): a writer waits in the kernel until the last byte is
    /// with the peer; if that would take too long the transfer fails.
    Lease,
    /// A clone of the file (ioctl_ficlone(2)), which no other process can write to, is moved
    /// instead.
    Snapshot,
}

impl Integrity {
    /// Every level, weakest first.
    pub const ALL: [Self; 4] = [Self::Fast, Self::Detect, Self::Lease, Self::Snapshot];

    /// Returns the name used in flags and receipts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Detect => "detect",
            Self::Lease => "lease",
            Self::Snapshot => "snapshot",
        }
    }

    /// Returns why this level was declined, for people.
    #[must_use]
    pub fn meaning(self, reason: DeclineReason) -> &'static str {
        let errno = match reason {
            DeclineReason::Errno(errno) => errno,
            DeclineReason::Excluded => return "the program has to read the file itself",
            _ => return "nothing was cloned",
        };
        match (self, errno) {
            (Self::Lease, Errno::AGAIN) => "a program has the file open for writing",
            (Self::Lease, Errno::ACCESS) => "the file belongs to another user",
            (Self::Lease, Errno::OPNOTSUPP) => {
                "the file system grants no leases that hold off every writer"
            }
            (Self::Lease, _) => "the file system grants no leases",
            (Self::Snapshot, Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => {
                "the file system cannot share blocks"
            }
            (Self::Snapshot, Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
                "the file's folder is not writable"
            }
            (Self::Snapshot, Errno::NOSPC | Errno::DQUOT) => "no space is left for a clone",
            _ => "the file cannot be cloned",
        }
    }
}

impl fmt::Display for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Integrity {
    type Err = UnknownIntegrity;

    fn from_str(name: &str) -> Result<Self, UnknownIntegrity> {
        Self::ALL.into_iter().find(|level| level.name() == name).ok_or(UnknownIntegrity)
    }
}

/// The name is not that of an [`Integrity`] level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownIntegrity;

impl fmt::Display for UnknownIntegrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("integrity levels are fast, detect, lease, snapshot")
    }
}

impl std::error::Error for UnknownIntegrity {}
