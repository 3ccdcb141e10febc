//! Tells a file from another one that has replaced it, even with the same inode number.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Statx, StatxFlags, statx};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use underpass_engine::birth_time;

/// The identity of a file. File systems soon reuse the inode number of a deleted file, but the new
/// file has a later birth time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileId {
    /// Its inode number.
    pub(crate) inode: u64,
    /// The birth time in seconds and nanoseconds; `None` on file systems without one and in older
    /// journals.
    #[serde(default)]
    pub(crate) born: Option<(i64, u32)>,
}

impl FileId {
    /// Returns the identity of an open file.
    pub(crate) fn of(file: impl AsFd) -> Result<Self, Errno> {
        Ok(Self::from(&statx(file, c"", AtFlags::EMPTY_PATH, FACTS)?))
    }

    /// Returns the identity of the file `name` in a folder.
    pub(crate) fn named(folder: impl AsFd, name: &OsStr) -> Result<Self, Errno> {
        Ok(Self::from(&statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, FACTS)?))
    }

    /// Returns whether `found` may be this file; without a birth time, a match is not certain.
    pub(crate) fn may_be(self, found: Self) -> bool {
        let is_other = self.born.zip(found.born).is_some_and(|(then, now)| then != now);
        self.inode == found.inode && !is_other
    }
}

impl From<&Statx> for FileId {
    fn from(found: &Statx) -> Self {
        Self { inode: found.stx_ino, born: birth_time(found) }
    }
}

const FACTS: StatxFlags = StatxFlags::INO.union(StatxFlags::BTIME);
