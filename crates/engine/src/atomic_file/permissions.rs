//! Permissions of new files, given their ACLs and the files that they replace.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{
    Gid, Mode, OFlags, Stat, Uid, XattrFlags, fchmod, fchown, fgetxattr, fremovexattr, fsetxattr,
    fstat, getxattr, lgetxattr, lremovexattr, openat,
};
use rustix::io::Errno;
use rustix::path::Arg;

use super::hidden::is_of_stranger;
use crate::is_file;

/// The owner of a file that replaces another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptOwner {
    /// The owner of the old file, if this process may change owners (chown(2)).
    Old,
    /// The user of the process.
    Own,
}

/// Does the same as [`take_over`] with the file of this name, if there is one. Nothing is taken
/// over from links and devices.
///
/// # Errors
///
/// As open(2) of the old file and [`take_over`].
pub fn take_over_named(
    new: &File,
    folder: impl AsFd,
    name: impl Arg + Copy,
    owner: KeptOwner,
) -> Result<bool, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |how| openat(&folder, name, flags | how, Mode::empty());
    let old = match open(OFlags::PATH) {
        Err(Errno::NOENT) => return Ok(false),
        old => old?,
    };
    if !is_file(&fstat(&old)?) {
        return Ok(false);
    }
    // Without /proc, an `O_PATH` descriptor gives no attributes; one open for reading does.
    let old = open(OFlags::RDONLY | OFlags::NONBLOCK).unwrap_or(old);
    take_over(new, old.as_fd(), &folder, owner)
}

/// Gives a new file the permissions and the ACL of the one that it replaces, as if the old one had
/// been written to, and its group where that is allowed. What the file system or the kernel does
/// not allow is left out. If the group cannot be kept, the ACL is dropped, and the group and all
/// others get only the permissions that both had. Nothing is kept of a file that another user has
/// put into a shared `folder`: its mode would decide who may write to the new one. Returns whether
/// anything was kept.
///
/// # Errors
///
/// As fstat(2) of either file, fgetxattr(2) of the old one if the ACL cannot be read now, and
/// fremovexattr(2) and fchmod(2) of the new one; `ENOSPC`, `EDQUOT` or `EIO` if the ACL cannot be
/// stored.
pub fn take_over(
    new: &File,
    old: BorrowedFd<'_>,
    folder: impl AsFd,
    owner: KeptOwner,
) -> Result<bool, Errno> {
    let (had, has): (Stat, Stat) = (fstat(old)?, fstat(new)?);
    if is_of_stranger(&had, folder) {
        return Ok(false);
    }
    let mut mode = without_acl(old, had.st_mode) & 0o777;
    let mut acl = [0; MAX_ACL];
    let mut acl_len = match acl_of(old, &mut acl) {
        Err(errno) if !is_missing(errno) && !is_closed(errno) => return Err(errno),
        read => read.ok(),
    };
    if had.st_gid != has.st_gid && fchown(new, None, Some(Gid::from_raw(had.st_gid))).is_err() {
        (mode, acl_len) = (of_other_group(mode), None);
    }
    set_mode(new, mode)?;
    if let Some(len) = acl_len
        && let Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) =
            fsetxattr(new, ACL, &acl[..len], XattrFlags::empty())
    {
        return Err(errno);
    }
    if owner == KeptOwner::Old && had.st_uid != has.st_uid {
        // This comes last: only the owner may set permissions. Few users may give files away.
        let _ = fchown(new, Some(Uid::from_raw(had.st_uid)), None);
    }
    Ok(true)
}

/// Returns the mode of a file that gets another group, whose old group now counts among the others.
fn of_other_group(mode: u32) -> u32 {
    let common = (mode >> 3) & mode & 7;
    mode & 0o700 | common << 3 | common
}

/// Gives a new file these permissions, and removes the ACL that it inherited from its folder.
///
/// # Errors
///
/// As fremovexattr(2) and fchmod(2).
pub fn set_mode(new: &File, mode: u32) -> Result<(), Errno> {
    remove_attribute(new, ACL)?;
    match fchmod(new, Mode::from_raw_mode(mode)) {
        // A file system without permissions may refuse even the mode that all its files have.
        Err(errno) if fstat(new)?.st_mode & 0o7777 != mode & 0o7777 => Err(errno),
        _ => Ok(()),
    }
}

/// Removes an extended attribute of a file, if the file has it.
///
/// # Errors
///
/// As removexattr(2), if the file has the attribute.
pub fn remove_attribute(file: impl AsFd, name: &CStr) -> Result<(), Errno> {
    let look = || fgetxattr(&file, name, &mut [0_u8; 0]);
    unless_missing(fremovexattr(&file, name), look)
}

/// Removes an extended attribute of the entry at a path, if it has it. A link is not followed.
///
/// # Errors
///
/// As lremovexattr(2), if the entry has the attribute.
pub fn remove_attribute_at(path: &Path, name: &CStr) -> Result<(), Errno> {
    unless_missing(lremovexattr(path, name), || lgetxattr(path, name, &mut [0_u8; 0]))
}

/// Returns the outcome of removing an attribute: also a success if `look` finds none.
fn unless_missing(
    removed: Result<(), Errno>,
    look: impl FnOnce() -> Result<usize, Errno>,
) -> Result<(), Errno> {
    match removed {
        // A file system may refuse the call even if there is no such attribute.
        Err(errno) if !is_missing(errno) => match look() {
            Err(found) if is_missing(found) => Ok(()),
            _ => Err(errno),
        },
        _ => Ok(()),
    }
}

/// Returns the mode of a copy of this file that does not get its ACL. With an ACL the group bits of
/// a mode are the ACL's mask, which may allow more than the group has. If the ACL cannot be read,
/// the group gets no permissions.
#[must_use]
pub fn without_acl(file: BorrowedFd<'_>, mode: u32) -> u32 {
    try_without_acl(file, mode).unwrap_or(mode & !0o070)
}

/// Does the same as [`without_acl`] for a caller that reports an ACL which cannot be read.
///
/// # Errors
///
/// As fgetxattr(2), unless there is no ACL, it is longer than 4 KiB, or reading it is refused.
pub fn try_without_acl(file: BorrowedFd<'_>, mode: u32) -> Result<u32, Errno> {
    // The ACL does not matter if the mask allows the group no more than others.
    if (mode >> 3) & 7 & !(mode & 7) == 0 {
        return Ok(mode);
    }
    let mut acl = [0; MAX_ACL];
    match acl_of(file, &mut acl) {
        Ok(len) => Ok(mode & (!0o070 | group_of(&acl[..len.min(acl.len())]) << 3)),
        Err(errno) if is_missing(errno) => Ok(mode),
        Err(errno) if is_closed(errno) => Ok(mode & !0o070),
        Err(errno) => Err(errno),
    }
}

/// Returns whether an error means that the file does not have the attribute.
fn is_missing(errno: Errno) -> bool {
    matches!(errno, Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS)
}

/// Returns whether an error means that an ACL is never read: it is too long, or a file system, as of
/// some FUSE programs, refuses.
fn is_closed(errno: Errno) -> bool {
    matches!(errno, Errno::RANGE | Errno::PERM | Errno::ACCESS | Errno::INVAL)
}

/// Reads the ACL of a file, and returns its length.
fn acl_of(file: BorrowedFd<'_>, acl: &mut [u8; MAX_ACL]) -> Result<usize, Errno> {
    match fgetxattr(file, ACL, &mut acl[..]) {
        // An `O_PATH` descriptor. Without /proc its ACL is never read.
        Err(Errno::BADF) => {
            match getxattr(format!("/proc/self/fd/{}", file.as_raw_fd()), ACL, &mut acl[..]) {
                Err(Errno::NOENT) => Err(Errno::ACCESS),
                len => len,
            }
        }
        len => len,
    }
}

/// Returns the permissions that an ACL gives the group of the file.
fn group_of(acl: &[u8]) -> u32 {
    acl_entry(acl, GROUP_OBJ).unwrap_or(0)
}

/// Returns the permissions of the entry with this tag, if the ACL has one.
#[must_use]
pub fn acl_entry(acl: &[u8], tag: u32) -> Option<u32> {
    let mut entries = acl.get(HEADER..).unwrap_or_default().chunks_exact(ENTRY);
    let field = |entry: &[u8], at: usize| u32::from(u16::from_le_bytes([entry[at], entry[at + 1]]));
    entries.find(|entry| field(entry, 0) == tag).map(|entry| field(entry, 2) & 7)
}

const ACL: &CStr = c"system.posix_acl_access";

/// The longest ACL that is read, in bytes.
const MAX_ACL: usize = 4096;

/// The layout of an ACL: a version, then tag, permissions and ID of each entry (acl(5)).
const HEADER: usize = 4;
const ENTRY: usize = 8;
const GROUP_OBJ: u32 = 4;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use rustix::fs::{CWD, OFlags, openat};

    use super::*;

    #[test]
    fn group_rights_come_from_the_group_entry_not_the_acl_mask() {
        let entry = |tag: u16, may: u16| {
            [tag.to_le_bytes(), may.to_le_bytes(), [0xff; 2], [0xff; 2]].concat()
        };
        let acl =
            [vec![2, 0, 0, 0], entry(1, 6), entry(2, 7), entry(4, 5), entry(16, 7), entry(32, 0)];
        assert_eq!(group_of(&acl.concat()), 5);
        assert_eq!(group_of(&[2, 0, 0, 0]), 0);
        assert_eq!(group_of(&[]), 0);
    }

    #[test]
    fn a_change_of_group_gives_no_member_more_permissions() {
        for (had, has) in [(0o640, 0o600), (0o604, 0o600), (0o664, 0o644), (0o755, 0o755)] {
            assert_eq!(of_other_group(had), has, "{had:o}");
        }
    }

    #[test]
    fn the_acl_of_the_old_file_takes_the_place_of_an_inherited_one() {
        let entry = |tag: u16, may: u16, id: u32| {
            [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let acl_for = |user: u32| {
            let rest = [entry(4, 4, !0), entry(16, 6, !0), entry(32, 0, !0)].concat();
            [vec![2, 0, 0, 0], entry(1, 6, !0), entry(2, 6, user), rest].concat()
        };
        let folder = tempfile::tempdir().unwrap();
        let in_folder = || File::open(folder.path()).unwrap();
        let [plain, ruled] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
        let set = |file: &File, acl: &[u8]| fsetxattr(file, ACL, acl, XattrFlags::empty());
        if set(ruled.as_file(), &acl_for(1000)).is_err() {
            return;
        }
        for (old, expected) in [(&plain, None), (&ruled, Some(acl_for(1000)))] {
            let new = tempfile::tempfile().unwrap();
            set(&new, &acl_for(2000)).unwrap();
            // Opened with `O_PATH`.
            let old = openat(CWD, old.path(), OFlags::PATH, Mode::empty()).unwrap();
            take_over(&new, old.as_fd(), in_folder(), KeptOwner::Own).unwrap();
            let mut acl = [0; MAX_ACL];
            let found = acl_of(new.as_fd(), &mut acl).ok().map(|len| acl[..len].to_vec());
            assert_eq!(found, expected);
            assert_eq!(fstat(&new).unwrap().st_mode & 0o777, fstat(&old).unwrap().st_mode & 0o777);
        }
    }

    #[test]
    fn owner_and_group_are_kept_where_that_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let in_folder = || File::open(folder.path()).unwrap();
        let [old, new] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        old.set_permissions(PermissionsExt::from_mode(0o640)).unwrap();
        // Another user and group, which only root can set.
        let is_root = fchown(&old, Some(Uid::from_raw(2001)), Some(Gid::from_raw(3000))).is_ok();
        let ids = |file: &File| file.metadata().map(|stat| (stat.uid(), stat.gid())).unwrap();
        let own = ids(&new);
        take_over(&new, old.as_fd(), in_folder(), KeptOwner::Own).unwrap();
        let gid = if is_root { 3000 } else { own.1 };
        assert_eq!(ids(&new), (own.0, gid));
        assert_eq!(new.metadata().unwrap().mode() & 0o777, 0o640);
        take_over(&new, old.as_fd(), in_folder(), KeptOwner::Old).unwrap();
        assert_eq!(ids(&new), ids(&old));
        assert_eq!(new.metadata().unwrap().mode() & 0o777, 0o640);
        // In a folder like /tmp, that user would decide who may write to the new file.
        let new = tempfile::tempfile().unwrap();
        let before = (ids(&new), new.metadata().unwrap().mode());
        in_folder().set_permissions(PermissionsExt::from_mode(0o1777)).unwrap();
        old.set_permissions(PermissionsExt::from_mode(0o666)).unwrap();
        take_over(&new, old.as_fd(), in_folder(), KeptOwner::Old).unwrap();
        assert_eq!(before == (ids(&new), new.metadata().unwrap().mode()), is_root);
    }
}
