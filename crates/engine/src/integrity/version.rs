//! The metadata that distinguishes one file from another, and one version of a file from another.

use std::os::fd::AsFd;

use rustix::fs::{FileType, Stat, Timespec, fstat};

use super::kept_time::mtime;

/// Identifies a file, whatever its names: its file system and its number there.
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

    /// Returns the version with these values, as the methods of the same names return them.
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

    /// Returns the number of hard links (`st_nlink`); 0 once the last name was removed.
    #[must_use]
    pub const fn links(&self) -> u64 {
        self.links
    }

    /// Returns whether the contents may differ between two looks at one file.
    ///
    /// A file that loses its name because another was renamed over it, or gains a second one, has
    /// a new ctime but the same contents: replacing a file is the right way to publish a new
    /// version and must not break transfers of the old one. So a ctime alone shows a change only
    /// while the number of names is the same.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> bool {
        let same_contents = (self.device, self.inode, self.size, self.modified)
            == (other.device, other.inode, other.size, other.modified);
        !same_contents || (self.changed != other.changed && self.links == other.links)
    }
}
