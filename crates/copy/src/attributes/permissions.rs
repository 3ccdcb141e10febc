//! Permissions of new files, with regard to ACLs and to the files that they replace.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{Gid, Mode, OFlags, Stat, fchmod, fchown, fgetxattr, fstat, getxattr, openat};
use rustix::io::Errno;

/// Returns the mode of a copy of this file that does not get its ACL. With an ACL the group bits of
/// a mode are the ACL's mask, which may allow more than the group has.
#[must_use]
pub fn without_acl(file: BorrowedFd<'_>, mode: u32) -> u32 {
    // No look-up is needed if the group may do no more than others.
    if (mode >> 3) & 7 & !(mode & 7) == 0 {
        return mode;
    }
    let mut acl = [0; 4096];
    let len = match fgetxattr(file, ACL, &mut acl) {
        // A file opened for its name only.
        Err(Errno::BADF) => getxattr(format!("/proc/self/fd/{}", file.as_raw_fd()), ACL, &mut acl),
        len => len,
    };
    match len {
        Ok(len) => mode & (!0o070 | group_of(&acl[..len.min(acl.len())]) << 3),
        // An ACL that is too long to be looked at.
        Err(Errno::RANGE) => mode & !0o070,
        Err(_) => mode,
    }
}

/// Does the same as [`without_acl`] for what cannot be opened: devices, FIFOs and sockets.
pub(crate) fn without_acl_by_name(folder: BorrowedFd<'_>, name: &CStr, mode: u32) -> u32 {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        Ok(file) => without_acl(file.as_fd(), mode),
        Err(_) => mode & !0o070,
    }
}

/// Returns what an ACL lets the group of the file do.
fn group_of(acl: &[u8]) -> u32 {
    entry_of(acl, GROUP_OBJ).unwrap_or(0)
}

/// Returns the permissions of the entry with this tag, if the ACL has one.
fn entry_of(acl: &[u8], tag: u32) -> Option<u32> {
    let mut entries = acl.get(HEADER..).unwrap_or_default().chunks_exact(ENTRY);
    let field = |entry: &[u8], at: usize| u32::from(u16::from_le_bytes([entry[at], entry[at + 1]]));
    entries.find(|entry| field(entry, 0) == tag).map(|entry| field(entry, 2) & 7)
}

/// Returns the permissions that a new folder may have because of the default ACL that it has got
/// from the folder above. The kernel applies them when a folder is made, but not when its mode is
/// set later.
pub(crate) fn inherited_by(folder: BorrowedFd<'_>) -> u32 {
    let mut acl = [0; 4096];
    match fgetxattr(folder, DEFAULT_ACL, &mut acl) {
        Ok(len) => allowed_by(&acl[..len.min(acl.len())]),
        // An ACL that is too long to be looked at.
        Err(Errno::RANGE) => 0o700,
        Err(_) => 0o777,
    }
}

/// Returns the mode of which a default ACL allows every new file a part.
fn allowed_by(acl: &[u8]) -> u32 {
    let entry = |tag| entry_of(acl, tag);
    let group = entry(MASK).or_else(|| entry(GROUP_OBJ));
    entry(USER_OBJ).unwrap_or(7) << 6 | group.unwrap_or(7) << 3 | entry(OTHER).unwrap_or(7)
}

/// Gives a new file the permissions of the one that it replaces, as if that had been written to.
///
/// # Errors
///
/// As fstat(2) of either file and fchmod(2) of the new one.
pub fn take_over(new: &File, old: BorrowedFd<'_>) -> Result<(), Errno> {
    let (had, has): (Stat, Stat) = (fstat(old)?, fstat(new)?);
    let mut mode = without_acl(old, had.st_mode) & 0o777;
    if had.st_gid != has.st_gid && fchown(new, None, Some(Gid::from_raw(had.st_gid))).is_err() {
        // Another group gets no more than others.
        mode &= !0o070 | (mode & 7) << 3;
    }
    fchmod(new.as_fd(), Mode::from_raw_mode(mode))
}

const ACL: &CStr = c"system.posix_acl_access";
const DEFAULT_ACL: &CStr = c"system.posix_acl_default";

/// The layout of an ACL: a version, then tag, permissions and number of each entry (acl(5)).
const HEADER: usize = 4;
const ENTRY: usize = 8;
const USER_OBJ: u32 = 1;
const GROUP_OBJ: u32 = 4;
const MASK: u32 = 16;
const OTHER: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_not_the_mask() {
        let entry = |tag: u16, may: u16| {
            [tag.to_le_bytes(), may.to_le_bytes(), [0xff; 2], [0xff; 2]].concat()
        };
        let acl =
            [vec![2, 0, 0, 0], entry(1, 6), entry(2, 7), entry(4, 5), entry(16, 7), entry(32, 0)];
        assert_eq!(group_of(&acl.concat()), 5);
        assert_eq!(allowed_by(&acl.concat()), 0o670);
        assert_eq!(group_of(&[2, 0, 0, 0]), 0);
        assert_eq!(group_of(&[]), 0);
    }
}
