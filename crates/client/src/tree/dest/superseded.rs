//! The files of an archive that has changed on the server: they are kept in a folder within the
//! unfinished one, and those that are unchanged in the new archive are moved back.

use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags, mkdirat, renameat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{names, remove_folder};
use underpass_sys::open_beneath;

use super::DestFolder;
use crate::tree::paths::SUPERSEDED;

impl DestFolder {
    /// Moves everything in the folder to the one for files of older archives. The latter is emptied
    /// first, but keeps its contents if there is nothing to move.
    pub(in crate::tree) fn put_aside(&self) -> Result<(), Errno> {
        let root = open_beneath(self.root.as_fd(), b"", FOLDER)?;
        let mut names = names(&root)?;
        names.retain(|name| name.as_c_str() != SUPERSEDED);
        if names.is_empty() {
            return Ok(());
        }
        self.discard_superseded()?;
        mkdirat(&root, SUPERSEDED, Mode::RWXU)?;
        let superseded = open_beneath(&root, SUPERSEDED.to_bytes(), FOLDER)?;
        names.iter().try_for_each(|name| renameat(&root, name, &superseded, name))
    }

    /// Makes no use of files of older archives.
    pub(in crate::tree) fn forget_superseded(&mut self) {
        self.old = None;
    }

    /// Removes the folder for files of older archives; `EBUSY` if something is mounted in it.
    pub(in crate::tree) fn discard_superseded(&self) -> Result<(), Errno> {
        match remove_folder(&self.root, SUPERSEDED) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);
