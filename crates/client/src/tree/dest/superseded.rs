//! The files of an archive that has changed on the server: they lie in a folder in the unfinished
//! one, and those that are the same in the new archive are moved back.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, renameat, unlinkat};
use rustix::io::Errno;
use underpass_engine::atomic_file::names;
use underpass_sys::{open_beneath, open_in_mount};

use super::DestFolder;
use crate::tree::paths::SUPERSEDED;

impl DestFolder {
    /// Moves everything in the folder to the one for files of older archives. What was there is
    /// removed before; if there is nothing to move it stays.
    pub(in crate::tree) fn put_aside(&self) -> Result<(), Errno> {
        let root = open_beneath(self.root.as_fd(), b"", FOLDER)?;
        let mut names = names(&root)?;
        names.retain(|name| name.as_bytes() != SUPERSEDED.as_bytes());
        if names.is_empty() {
            return Ok(());
        }
        self.discard_superseded()?;
        mkdirat(&root, SUPERSEDED, Mode::RWXU)?;
        let superseded = open_beneath(&root, SUPERSEDED.as_bytes(), FOLDER)?;
        names.iter().try_for_each(|name| renameat(&root, name, &superseded, name))
    }

    /// Uses none of the files of older archives.
    pub(in crate::tree) fn forget_superseded(&mut self) {
        self.old = None;
    }

    /// Removes the folder for files of older archives.
    pub(in crate::tree) fn discard_superseded(&self) -> Result<(), Errno> {
        let folder = match open_in_mount(self.root.as_fd(), SUPERSEDED.as_bytes(), FOLDER) {
            Err(Errno::NOENT) => return Ok(()),
            folder => folder?,
        };
        empty(&folder)?;
        unlinkat(&self.root, SUPERSEDED, AtFlags::REMOVEDIR)
    }
}

/// Removes everything in a folder, and enters nothing that is mounted in it: that is an `EXDEV`.
fn empty(folder: &OwnedFd) -> Result<(), Errno> {
    for name in names(folder)? {
        match unlinkat(folder, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR) => {}
            Err(errno) => return Err(errno),
        }
        empty(&open_in_mount(folder, name.as_bytes(), FOLDER)?)?;
        unlinkat(folder, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);
