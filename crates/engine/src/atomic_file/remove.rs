//! Removes folders with everything in them, except what is mounted there.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Mode, OFlags, StatxAttributes, StatxFlags, fstat, openat, statat, statx, unlinkat,
};
use rustix::io::Errno;

use super::names::names;
use crate::integrity::is_folder;

/// Removes a folder with everything in it. No link is followed.
///
/// # Errors
///
/// `EBUSY` if something is mounted on it or in it, and as openat(2) and unlinkat(2).
///
/// # On failure
///
/// Entries that were not removed yet stay, and so does everything that is mounted below.
pub fn remove_folder(parent: impl AsFd, name: &CStr) -> Result<(), Errno> {
    let parent = parent.as_fd();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder: OwnedFd = openat(parent, name, flags, Mode::empty())?;
    if is_mounted(&folder, parent)? {
        return Err(Errno::BUSY);
    }
    for name in names(&folder)? {
        let removed = match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_folder(&stat) => remove_folder(&folder, &name),
            Ok(_) => unlinkat(&folder, &name, AtFlags::empty()),
            Err(errno) => Err(errno),
        };
        match removed {
            // Another process has removed it.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Returns whether a folder is a mount point, also of a bind mount, and not just
/// an entry of `parent`.
///
/// # Errors
///
/// As fstat(2).
pub fn is_mounted(folder: impl AsFd, parent: impl AsFd) -> Result<bool, Errno> {
    // Kernels before 5.8 do not tell, and show another file system alone.
    let is_root = statx(&folder, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    Ok(is_root || fstat(folder)?.st_dev != fstat(parent)?.st_dev)
}
