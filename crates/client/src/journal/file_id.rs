//! Tells a file from another one that took its name, even if it also took its inode number.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Statx, StatxFlags, statx};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Which file it is. A number that has become free is often given to the next new file, which was
/// made later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileId {
    /// Its inode number.
    pub(crate) inode: u64,
    /// When it was made, in seconds and nanoseconds; unknown on some file systems, and absent in
    /// older journals.
    #[serde(default)]
    pub(crate) born: Option<(i64, u32)>,
}

impl FileId {
    /// Returns that of an open file.
    pub(crate) fn of(file: impl AsFd) -> Result<Self, Errno> {
        Ok(Self::from(&statx(file, c"", AtFlags::EMPTY_PATH, FACTS)?))
    }

    /// Returns that of the file with a name in a folder.
    pub(crate) fn named(folder: impl AsFd, name: &OsStr) -> Result<Self, Errno> {
        Ok(Self::from(&statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, FACTS)?))
    }

    /// Returns whether it may be this file: only one of an older journal need not be.
    pub(crate) fn may_be(self, found: Self) -> bool {
        let is_other = self.born.zip(found.born).is_some_and(|(then, now)| then != now);
        self.inode == found.inode && !is_other
    }
}

impl From<&Statx> for FileId {
    fn from(found: &Statx) -> Self {
        let is_known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = is_known.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec));
        Self { inode: found.stx_ino, born }
    }
}

const FACTS: StatxFlags = StatxFlags::INO.union(StatxFlags::BTIME);
