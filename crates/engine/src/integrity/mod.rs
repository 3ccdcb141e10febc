//! How sure a transfer has to be that its bytes are those of one version of the file.
//!
//! Pages go to a socket by reference, so a file that is written to while it is sent may reach the
//! peer half old, half new. Each level is one answer, from trusting to preventing.

mod lease;
mod snapshot;
mod writers;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;

use rustix::fs::{Stat, fstat};
use rustix::io::Errno;

pub(crate) use lease::{Lease, LeaseState};
pub use writers::{WriterCheck, Writers};

use crate::chain::Source;
use crate::step::Refusal;

/// How sure a transfer has to be that its bytes are those of one version of the file.
///
/// Streams and files of procfs have only one version; every level takes them as they come.
///
/// The peer has a byte once its kernel has acknowledged it or, where the peer is a pipe or a
/// socket of this machine and would share the file's pages until then, once it was read. A peer
/// on this machine that looks like another one, in a network namespace of its own or behind
/// address translation, cannot be told from one far away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Integrity {
    /// As the file is: right for files that are never written in place.
    #[default]
    Fast,
    /// The file's facts before the first byte and after the last are compared, on a socket or pipe
    /// once the peer has everything; a change makes the transfer fail.
    Detect,
    /// A read lease (fcntl(2), `F_SETLEASE`): a writer has to wait in the kernel until the last
    /// byte is with the peer; if that would take too long the transfer fails.
    Lease,
    /// A clone of the file (ioctl_ficlone(2)), which nobody can write to, is moved instead.
    Snapshot,
}

impl Integrity {
    /// Every level, weakest first.
    pub const ALL: [Self; 4] = [Self::Fast, Self::Detect, Self::Lease, Self::Snapshot];

    /// The name used in flags and receipts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Detect => "detect",
            Self::Lease => "lease",
            Self::Snapshot => "snapshot",
        }
    }

    /// What a refusal of this level means, for people.
    #[must_use]
    pub fn reason(self, refusal: Refusal) -> &'static str {
        let Refusal::Errno(errno) = refusal else { return "nothing was cloned" };
        match (self, errno) {
            (Self::Lease, Errno::AGAIN) => "somebody has the file open for writing",
            (Self::Lease, Errno::ACCESS) => "the file belongs to somebody else",
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

/// The facts of a file that change when its contents do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
    links: u64,
}

impl Version {
    /// The present version of a file.
    ///
    /// # Errors
    ///
    /// As fstat(2).
    pub fn of(fd: impl AsFd) -> std::io::Result<Self> {
        Ok(Self::from_stat(&fstat(fd)?))
    }

    /// The version that a `stat` describes.
    #[must_use]
    pub fn from_stat(stat: &Stat) -> Self {
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast)] // types differ by target
        Self {
            device: stat.st_dev.into(),
            inode: stat.st_ino.into(),
            size: stat.st_size.into(),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            links: stat.st_nlink.into(),
        }
    }

    /// The version with these facts, as the methods of these names tell them.
    #[must_use]
    pub const fn from_parts(
        device: u64,
        inode: u64,
        size: u64,
        modified: (i64, i64),
        changed: (i64, i64),
        links: u64,
    ) -> Self {
        Self { device, inode, size: size.cast_signed(), modified, changed, links }
    }

    /// The number of the file system.
    #[must_use]
    pub const fn device(&self) -> u64 {
        self.device
    }

    /// The file's number on its file system.
    #[must_use]
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// The size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size.unsigned_abs()
    }

    /// When the contents were last changed: seconds and nanoseconds since 1970. Anybody who may
    /// write to the file can set it.
    #[must_use]
    pub const fn modified(&self) -> (i64, i64) {
        self.modified
    }

    /// When the file or its facts were last changed: seconds and nanoseconds since 1970. Nobody
    /// can set it.
    #[must_use]
    pub const fn changed(&self) -> (i64, i64) {
        self.changed
    }

    /// How many names the file has; none once the last was removed.
    #[must_use]
    pub const fn links(&self) -> u64 {
        self.links
    }

    /// Whether the contents may differ between two looks at one file.
    ///
    /// A file that loses its name because another was renamed over it, or gains a second one, has
    /// a new ctime but the same contents: replacing a file is the right way to publish a new
    /// version and must not break transfers of the old one. So a ctime alone tells a change only
    /// while the number of names is the same.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> bool {
        let same_contents = (self.device, self.inode, self.size, self.modified)
            == (other.device, other.inode, other.size, other.modified);
        !same_contents || (self.changed != other.changed && self.links == other.links)
    }
}

/// What watches over one file of a transfer.
#[derive(Debug)]
pub(crate) enum Guard {
    /// Nothing has to be watched.
    None,
    /// The facts to compare with at the end.
    Detect(Version),
    /// The lease held on the file.
    Lease(Lease),
    /// The clone that is read instead of the file.
    Snapshot(OwnedFd),
}

impl Guard {
    /// Sets up the guard for one regular file, or says why it cannot be had.
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
            Integrity::Lease => Self::Lease(Lease::take(file, version)?),
            Integrity::Snapshot => Self::Snapshot(snapshot::take(file, version)?),
        })
    }

    /// Whether the file still is as it was; only a guard that compares can tell.
    pub(crate) fn holds(&self, file: impl AsFd) -> bool {
        match self {
            Self::Detect(before) => {
                Version::of(file).is_ok_and(|after| !after.differs_from(before))
            }
            _ => true,
        }
    }

    /// The same, before the first byte of a small file is moved.
    pub(crate) fn holds_before<F: AsFd>(&self, source: &Source<F>) -> bool {
        match self {
            Self::Detect(before) if source.is_in_place => {
                Version::of(&source.fd).is_ok_and(|after| after == *before)
            }
            _ => self.holds(&source.fd),
        }
    }

    /// Stops comparing, because nothing refers to the file's pages any more. A lease is kept: it
    /// guards the other parts of the file too.
    pub(crate) fn release(&mut self) {
        if let Self::Detect(_) = self {
            *self = Self::None;
        }
    }
}
