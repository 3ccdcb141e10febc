//! The metadata that distinguishes one file from another, and one version of a file from another.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Mutex;

use rustix::fs::{AtFlags, FileType, Stat, Statx, StatxFlags, Timespec, fstat, makedev, statx};

use super::kept_time::mtime;
use crate::wait::lock;

/// Identifies a file regardless of its names: by its file system and inode number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Returns which file a `stat` describes.
    #[must_use]
    pub fn of(stat: &Stat) -> Self {
        #[allow(clippy::useless_conversion)] // types differ by target
        Self { device: stat.st_dev.into(), inode: stat.st_ino.into() }
    }
}

/// Returns when a file was created, in seconds and nanoseconds, if its file system records that and
/// the caller has asked for it (`STATX_BTIME`). An inode number is soon used again, but with a later
/// birth time.
#[must_use]
pub fn birth_time(found: &Statx) -> Option<(i64, u32)> {
    let is_known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    is_known.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
}

/// Returns whether a `stat` describes a regular file.
#[must_use]
pub fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Returns whether a `stat` describes a folder.
#[must_use]
pub fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// The metadata of a file that changes when its contents do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    device: u64,
    inode: u64,
    size: i64,
    modified: Timespec,
    changed: Timespec,
    links: u64,
}

impl Version {
    /// Returns the present version of a file.
    ///
    /// # Errors
    ///
    /// As fstat(2).
    pub fn of(fd: impl AsFd) -> std::io::Result<Self> {
        Ok(Self::from_stat(&fstat(fd)?))
    }

    /// Returns the version that the kernel has in memory. The server or program that provides the
    /// file is not asked for a newer one, since that call could block forever.
    ///
    /// # Errors
    ///
    /// As statx(2).
    pub fn in_memory(fd: impl AsFd) -> std::io::Result<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(fd, c"", flags, StatxFlags::BASIC_STATS)?;
        let [modified, changed] = [found.stx_mtime, found.stx_ctime]
            .map(|time| Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec.into() });
        let device = makedev(found.stx_dev_major, found.stx_dev_minor);
        let links = u64::from(found.stx_nlink);
        Ok(Self::from_parts(device, found.stx_ino, found.stx_size, modified, changed, links))
    }

    /// Returns the file that this is a version of.
    #[must_use]
    pub const fn file(&self) -> FileId {
        FileId { device: self.device, inode: self.inode }
    }

    /// Returns the version that a `stat` describes.
    #[must_use]
    pub fn from_stat(stat: &Stat) -> Self {
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast)] // types differ by target
        Self {
            device: stat.st_dev.into(),
            inode: stat.st_ino.into(),
            size: stat.st_size.into(),
            modified: mtime(stat),
            changed: Timespec { tv_sec: stat.st_ctime as i64, tv_nsec: stat.st_ctime_nsec as i64 },
            links: stat.st_nlink.into(),
        }
    }

    /// Returns a version with these values, named like the methods that return them.
    #[must_use]
    pub const fn from_parts(
        device: u64,
        inode: u64,
        size: u64,
        modified: Timespec,
        changed: Timespec,
        links: u64,
    ) -> Self {
        Self { device, inode, size: size.cast_signed(), modified, changed, links }
    }

    /// Returns the device number of the file system (`st_dev`).
    #[must_use]
    pub const fn device(&self) -> u64 {
        self.device
    }

    /// Returns the inode number (`st_ino`).
    #[must_use]
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size.unsigned_abs()
    }

    /// Returns the modification time (`st_mtime`), which any writer of the file can set.
    #[must_use]
    pub const fn modified(&self) -> Timespec {
        self.modified
    }

    /// Returns the change time (`st_ctime`), which no process can set.
    #[must_use]
    pub const fn changed(&self) -> Timespec {
        self.changed
    }

    /// Returns the link count (`st_nlink`); 0 once the last name was removed.
    #[must_use]
    pub const fn links(&self) -> u64 {
        self.links
    }

    /// Returns whether the contents may differ between two versions of one file.
    ///
    /// A file that loses its name because another was renamed over it, or gains a second one, has a
    /// new ctime but the same contents: replacing a file is the right way to publish a new version
    /// and must not break transfers of the old one. So a new ctime alone counts as a change only
    /// while the link count is the same, and only if this process did not
    /// [announce](crate::announce_attribute) that it sets an attribute.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> bool {
        let same_contents = (self.device, self.inode, self.size, self.modified)
            == (other.device, other.inode, other.size, other.modified);
        if !same_contents || self.changed == other.changed || self.links != other.links {
            return !same_contents;
        }
        if nanoseconds(self) < nanoseconds(other) {
            !explain(self, other)
        } else {
            !explain(other, self)
        }
    }
}

/// A change of an attribute by this process, which sets the file's ctime to a value within
/// `changed`, in nanoseconds since 1970.
#[derive(Debug)]
struct OwnChange {
    before: Version,
    changed: Range<i128>,
}

impl OwnChange {
    /// Returns whether a later version may be the result of this change.
    fn leads_to(&self, now: &Version) -> bool {
        nanoseconds(&self.before) < nanoseconds(now) && self.changed.contains(&nanoseconds(now))
    }
}

/// The latest announced changes of the process.
static CHANGES: Mutex<VecDeque<OwnChange>> = Mutex::new(VecDeque::new());

/// Announces that this process is about to set an attribute of a file in this version, which sets
/// its ctime to a value within `changed` (nanoseconds since 1970) and changes nothing else.
/// Transfers then treat both versions as equal. Only the last 256 announcements are kept.
pub fn announce_attribute(before: Version, changed: Range<i64>) {
    let changed = changed.start.into()..changed.end.into();
    let mut changes = lock(&CHANGES);
    if changes.len() >= MAX_CHANGES {
        changes.pop_front();
    }
    changes.push_back(OwnChange { before, changed });
}

/// Returns whether announced changes lead from one version to another that differs only in ctime.
fn explain(before: &Version, now: &Version) -> bool {
    let changes = lock(&CHANGES);
    leads(&changes, before, now)
}

fn leads(changes: &VecDeque<OwnChange>, before: &Version, now: &Version) -> bool {
    // Each step leads to an earlier ctime, so the recursion ends.
    let same_file = |change: &&OwnChange| {
        (change.before.device(), change.before.inode()) == (now.device(), now.inode())
            && change.leads_to(now)
    };
    changes
        .iter()
        .filter(same_file)
        .any(|change| change.before == *before || leads(changes, before, &change.before))
}

fn nanoseconds(version: &Version) -> i128 {
    let changed = version.changed();
    i128::from(changed.tv_sec) * 1_000_000_000 + i128::from(changed.tv_nsec)
}

/// The maximum number of changes remembered: far more than occur while a small file is sent.
const MAX_CHANGES: usize = 256;

#[cfg(test)]
mod tests {
    use rustix::fs::Timespec;

    use super::*;

    fn version(inode: u64, changed: i64) -> Version {
        let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
        Version::from_parts(1, inode, 5, time(7), time(changed), 1)
    }

    #[test]
    fn only_announced_attribute_changes_leave_the_version_valid() {
        let (first, second) = (version(91, 100), version(91, 205));
        assert!(second.differs_from(&first));
        announce_attribute(first, 200..210);
        announce_attribute(second, 200..210);
        for (changed, differs) in
            [(100, false), (199, true), (205, false), (209, false), (210, true)]
        {
            let now = version(91, changed);
            assert_eq!(now.differs_from(&first), differs, "{changed}");
            assert_eq!(first.differs_from(&now), differs, "{changed}");
        }
        // The result was changed again by another process, and then announced once more.
        announce_attribute(version(91, 300), 400..410);
        assert!(version(91, 405).differs_from(&first));
        assert!(!version(91, 405).differs_from(&version(91, 300)));
        announce_attribute(second, 500..510);
        assert!(!version(91, 505).differs_from(&first));
        assert!(version(92, 205).differs_from(&version(92, 100)));
    }
}
