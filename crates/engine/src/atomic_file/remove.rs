//! Removes folders with everything in them, except what is mounted there.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Mode, OFlags, StatxAttributes, StatxFlags, chmod, fchmod, fstat, openat, statat,
    statx, unlinkat,
};
use rustix::io::Errno;

use super::hidden::rename_new;
use super::names::names;
use crate::integrity::is_folder;

/// Removes a folder with everything in it. No link is followed. Folders of this user that are not
/// writable are made so.
///
/// A tree of any depth needs neither a deep stack nor many descriptors: the subfolders of a folder
/// are moved up before that folder is removed. Only subfolders that cannot be moved, such as those
/// of a lower layer of overlayfs, need a stack frame and a descriptor per level.
///
/// # Errors
///
/// `EBUSY` if something is mounted on it or in it, and as openat(2), renameat2(2) and unlinkat(2).
///
/// # On failure
///
/// Entries that were not removed yet are left, perhaps at another place in the folder, and so is
/// everything that is mounted below.
pub fn remove_folder(parent: impl AsFd, name: &CStr) -> Result<(), Errno> {
    let parent = parent.as_fd();
    let top = open_to_empty(parent, name)?;
    let (mut waiting, mut moved) = (names(&top)?, 0);
    while let Some(name) = waiting.pop() {
        if is_folder_in(&top, &name)? {
            let inner = open_to_empty(top.as_fd(), &name)?;
            for below in names(&inner)? {
                if is_folder_in(&inner, &below)? {
                    match move_up(&inner, &below, &top, &mut moved) {
                        // It is on a lower layer of overlayfs, or in a project with its own quota.
                        Err(Errno::XDEV) => remove_folder(&inner, &below)?,
                        new_name => waiting.push(new_name?),
                    }
                } else {
                    unlink(&inner, &below, AtFlags::empty())?
                }
            }
            unlink(&top, &name, AtFlags::REMOVEDIR)?;
        } else {
            unlink(&top, &name, AtFlags::empty())?;
        }
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Moves a folder up one level, and returns its new name.
fn move_up(from: &OwnedFd, name: &CStr, to: &OwnedFd, moved: &mut u64) -> Result<CString, Errno> {
    // Moving a folder rewrites its `..`, so it has to be writable.
    drop(open_to_empty(from.as_fd(), name)?);
    loop {
        // Digits have no zero byte in them.
        let new_name = CString::new(moved.to_string()).unwrap_or_default();
        *moved += 1;
        match rename_new(from, name, to, new_name.as_c_str()) {
            Err(Errno::EXIST | Errno::NOTEMPTY) => {}
            renamed => return renamed.map(|()| new_name),
        }
    }
}

/// Opens a folder to remove its entries, and makes it writable if this user may do that.
fn open_to_empty(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let open = |how| openat(parent, name, FOLDER | how, Mode::empty());
    let folder = match open(OFlags::RDONLY) {
        Err(Errno::ACCESS) => {
            let closed = open(OFlags::PATH)?;
            chmod(format!("/proc/self/fd/{}", closed.as_raw_fd()), Mode::RWXU)?;
            open(OFlags::RDONLY)?
        }
        opened => opened?,
    };
    if is_mounted(&folder, parent)? {
        return Err(Errno::BUSY);
    }
    make_writable(&folder)?;
    Ok(folder)
}

/// Lets this user change the entries of a folder, if it is the user's own.
///
/// # Errors
///
/// As fstat(2).
pub fn make_writable(folder: impl AsFd) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(fstat(&folder)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        // A folder of another user stays as it is.
        let _ = fchmod(&folder, mode | Mode::RWXU);
    }
    Ok(())
}

/// Returns whether an entry is a folder; false if another process has removed it.
fn is_folder_in(folder: &OwnedFd, name: &CStr) -> Result<bool, Errno> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(false),
        found => Ok(is_folder(&found?)),
    }
}

/// Removes an entry; another process may have removed it already.
fn unlink(folder: &OwnedFd, name: &CStr, how: AtFlags) -> Result<(), Errno> {
    match unlinkat(folder, name, how) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// The flags for opening a folder to be removed.
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Returns whether a folder is a mount point, also of a bind mount, and not just an entry of
/// `parent`.
///
/// # Errors
///
/// As fstat(2).
pub fn is_mounted(folder: impl AsFd, parent: impl AsFd) -> Result<bool, Errno> {
    // Kernels before 5.8 have no such attribute; there, only a change of file system shows a mount.
    let is_root = statx(&folder, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    Ok(is_root || fstat(folder)?.st_dev != fstat(parent)?.st_dev)
}
