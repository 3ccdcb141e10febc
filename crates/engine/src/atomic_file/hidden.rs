//! Files and folders with hidden names, and the removal of those that a killed process has left.
//!
//! A process locks what it works on (flock(2)), so a hidden name without a lock is a leftover if it
//! was made in this folder. The name encodes the number of its folder, so neither a copy elsewhere
//! nor a file that a user gave such a name is one. On file systems without locks leftovers stay.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, Stat, StatxAttributes, StatxFlags,
    flock, fstat, linkat, openat, renameat, renameat_with, statat, statx, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::geteuid;

use super::Existing;
use super::name::{fingerprint, hidden_name, number_of_hidden};
use super::open::open_entry;
use crate::integrity::{FileId, is_file};

/// Locks a file for this process, until its descriptor is closed. On a file system without locks this
/// always succeeds.
///
/// # Errors
///
/// `EWOULDBLOCK` if another process has locked it.
pub fn lock_file(file: impl AsFd) -> Result<(), Errno> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Errno::WOULDBLOCK),
        _ => Ok(()),
    }
}

/// Locks a file or folder with a hidden name for this process, until its descriptor is closed,
/// and returns whether that succeeded: `false` if another process has locked it, or has meanwhile
/// removed it or given it its final name. On a file system without locks this always succeeds.
pub fn try_lock(file: impl AsFd, folder: impl AsFd, hidden: impl Arg) -> bool {
    lock_named(file, folder, hidden).unwrap_or(false)
}

/// Does the same as [`try_lock`] for a caller that has just made the file or folder and removes it
/// if its state is unknown.
///
/// # Errors
///
/// As fstat(2) and statat(2); the lock is then held.
pub fn lock_named(file: impl AsFd, folder: impl AsFd, hidden: impl Arg) -> Result<bool, Errno> {
    if lock_file(&file).is_err() {
        return Ok(false);
    }
    let own = fstat(&file)?;
    match statat(folder, hidden, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok(FileId::of(&own) == FileId::of(&named)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Returns whether a folder is append-only (`chattr +a`): a hidden name in it would remain.
pub fn only_adds(folder: impl AsFd) -> bool {
    statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::APPEND))
}

/// Returns whether this error of linkat(2) into a folder means that its file system has no hard
/// links, or allows no more of this file: FAT, and FUSE programs that return `EROFS`, or like
/// rclone `EIO`, for calls they lack. Elsewhere `EIO` is a disk error.
pub fn lacks_links(errno: Errno, folder: impl AsFd) -> bool {
    use Errno as E;
    match errno {
        E::PERM | E::OPNOTSUPP | E::NOSYS | E::MLINK | E::ROFS => true,
        E::IO => underpass_sys::is_on_fuse(folder),
        _ => false,
    }
}

/// Renames without replacing anything.
///
/// # Errors
///
/// `EEXIST` if the name is taken, and as renameat2(2).
pub fn rename_new(
    from: impl AsFd,
    name: impl Arg + Copy,
    to: impl AsFd,
    new_name: impl Arg + Copy,
) -> Result<(), Errno> {
    match renameat_with(&from, name, &to, new_name, RenameFlags::NOREPLACE) {
        // The file system cannot check and rename atomically, or a folder would be moved into
        // itself, which the next attempt refuses as well.
        Err(Errno::INVAL | Errno::NOSYS) => {
            match statat(&to, new_name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => renameat(&from, name, &to, new_name),
                Err(errno) => Err(errno),
                Ok(_) => Err(Errno::EXIST),
            }
        }
        renamed => renamed,
    }
}

/// Creates a locked file with a fresh hidden name.
pub(super) fn create(
    folder: &OwnedFd,
    name: &OsStr,
    mode: Mode,
    keeps_leftovers: bool,
) -> Result<(OwnedFd, OsString), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let owner = Some(geteuid().as_raw()).filter(|_| !keeps_leftovers);
    claim(folder, name, owner, |hidden| {
        let file = openat(folder, hidden, flags, mode)?;
        // Another process may have removed it as a leftover before it was locked.
        if try_lock(&file, folder, hidden) { Ok(file) } else { Err(Errno::EXIST) }
    })
}

/// Creates the file with this hidden name, or opens the one of an earlier process unless it is to
/// be [kept](Existing::Keep).
///
/// # Errors
///
/// As open(2); `EPERM` if it is not [of this user](is_ours) alone.
pub(super) fn open_or_create(
    folder: &OwnedFd,
    hidden: &OsStr,
    mode: Mode,
    existing: Existing,
) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..MAX_ATTEMPTS {
        match openat(folder, hidden, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Err(Errno::EXIST) if existing == Existing::Replace => {}
            created => return created.map(File::from),
        }
        match openat(folder, hidden, flags, mode) {
            // Another process has removed it meanwhile.
            Err(Errno::NOENT) => {}
            opened => {
                let file = opened?;
                let is_ours = is_file(&fstat(&file)?) && is_ours(&file, folder)?;
                return if is_ours { Ok(file.into()) } else { Err(Errno::PERM) };
            }
        }
    }
    Err(Errno::EXIST)
}

/// Returns whether this user made a file or folder and no other user could have written to it: its
/// owner is the one that the file system gives to new files of this process in the folder, it has
/// no second hard link, and is writable only for users who may write to any new file there.
///
/// On file systems without owners or permissions, or with those of another machine, new files show
/// which ones to expect.
///
/// # Errors
///
/// As open(2).
pub fn is_ours(file: impl AsFd, folder: &OwnedFd) -> Result<bool, Errno> {
    was_made_with(file, folder, 0o666)
}

/// Does the same as [`is_ours`] for a file or folder made with mode 0600, whatever the umask.
///
/// # Errors
///
/// As open(2).
pub fn is_ours_alone(file: impl AsFd, folder: &OwnedFd) -> Result<bool, Errno> {
    was_made_with(file, folder, 0o600)
}

fn was_made_with(file: impl AsFd, folder: &OwnedFd, mode: u32) -> Result<bool, Errno> {
    let stat = fstat(file)?;
    if is_file(&stat) && stat.st_nlink > 1 {
        return Ok(false);
    }
    let for_others = stat.st_mode & WRITABLE_BY_OTHERS;
    if stat.st_uid == geteuid().as_raw() && for_others == 0 {
        return Ok(true);
    }
    let new = new_file(folder, mode)?;
    Ok(stat.st_uid == new.st_uid && for_others & !new.st_mode == 0)
}

/// Makes a file with this mode in a folder, removes it, and returns its metadata, which shows the
/// owner and permissions that the file system gives to new files of this process.
///
/// # Errors
///
/// As open(2).
pub fn new_file(folder: &OwnedFd, mode: u32) -> Result<Stat, Errno> {
    let (made, hidden) = create(folder, OsStr::new("owner"), Mode::from_raw_mode(mode), true)?;
    let stat = fstat(&made);
    unlinkat(folder, &hidden, AtFlags::empty())?;
    stat
}

/// Returns whether another user has put a file into a shared folder such as /tmp: one with the
/// sticky bit, where that user could not have replaced a file of this user.
pub fn is_of_stranger(file: &Stat, folder: impl AsFd) -> bool {
    file.st_uid != geteuid().as_raw()
        && fstat(folder).is_ok_and(|above| {
            let is_shared = Mode::from_raw_mode(above.st_mode).contains(Mode::SVTX);
            is_shared && file.st_uid != above.st_uid
        })
}

/// Gives an unnamed file (`O_TMPFILE`) a hidden name, under which it is locked.
///
/// # Errors
///
/// `EPERM` in an append-only folder, where it could not be renamed, and as linkat(2).
pub(super) fn name(
    file: &File,
    folder: &OwnedFd,
    name: &OsStr,
    keeps_leftovers: bool,
) -> Result<OsString, Errno> {
    if only_adds(folder) {
        return Err(Errno::PERM);
    }
    // No other process can have locked a file that has no name.
    let _ = flock(file, FlockOperation::NonBlockingLockExclusive);
    // A leftover of a killed process has the same owner as this file.
    let owner = Some(fstat(file)?.st_uid).filter(|_| !keeps_leftovers);
    Ok(claim(folder, name, owner, |hidden| link(file, folder, hidden))?.1)
}

/// Links an unnamed file through /proc, which needs no privilege. Without /proc, only kernels since
/// 6.10 link a file of this process without a privilege.
pub(super) fn link(file: &File, folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    match linkat(CWD, path, folder, name, AtFlags::SYMLINK_FOLLOW) {
        Err(Errno::NOENT) if !Path::new("/proc/self/fd").exists() => {
            // A missing privilege causes the same error as a missing folder.
            let linked = linkat(file, "", folder, name, AtFlags::EMPTY_PATH);
            linked.map_err(|errno| if errno == Errno::NOENT { Errno::NOSYS } else { errno })
        }
        linked => linked,
    }
}

/// Gives a file another hidden name, under which it counts as a leftover once it is not locked.
pub(super) fn rename(
    file: &File,
    folder: &OwnedFd,
    from: &OsStr,
    name: &OsStr,
    keeps_leftovers: bool,
) -> Result<OsString, Errno> {
    let owner = Some(fstat(file)?.st_uid).filter(|_| !keeps_leftovers);
    Ok(claim(folder, name, owner, |hidden| rename_new(folder, from, folder, hidden))?.1)
}

/// Calls `make` with hidden names until one is free. If there is an `owner`, leftovers of this user
/// or of that owner are removed on the way.
fn claim<T>(
    folder: &OwnedFd,
    name: &OsStr,
    owner: Option<u32>,
    mut make: impl FnMut(&OsStr) -> Result<T, Errno>,
) -> Result<(T, OsString), Errno> {
    let first = number_of(folder)?;
    for attempt in 0..MAX_ATTEMPTS {
        let hidden = hidden_name(name, Some(first.wrapping_add(attempt)));
        let mut made = make(&hidden);
        if matches!(made, Err(Errno::EXIST))
            && owner.is_some_and(|owner| remove_left_over(folder, &hidden, owner))
        {
            made = make(&hidden);
        }
        match made {
            Err(Errno::EXIST) => {}
            made => return made.map(|made| (made, hidden)),
        }
    }
    Err(Errno::EXIST)
}

/// Returns the number of the first hidden name in a folder. This one and the 999 after it show that
/// a name was made in that folder: the number is a hash of the inode number, so the numbers of two
/// folders are rarely close. The device number is left out because it may change with each mount.
///
/// # Errors
///
/// As fstat(2).
pub fn number_of(folder: impl AsFd) -> Result<u32, Errno> {
    Ok(fingerprint(&fstat(folder)?.st_ino.to_le_bytes()) as u32)
}

/// Removes a leftover: a file of this user or of `owner` that has this hidden name, was made in
/// this folder, and has neither a second name nor a lock. Returns whether it is gone.
pub fn remove_left_over(folder: &OwnedFd, hidden: &OsStr, owner: u32) -> bool {
    if !was_made_in(folder, hidden) {
        return false;
    }
    let Ok(file) = open_entry(folder, hidden) else { return false };
    let is_own = fstat(&file).is_ok_and(|stat| {
        is_file(&stat)
            && stat.st_nlink == 1
            && (stat.st_uid == geteuid().as_raw() || stat.st_uid == owner)
    });
    // On a file system without locks a missing lock proves nothing.
    let is_left_over = is_own
        && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        && try_lock(&file, folder, hidden);
    is_left_over && unlinkat(folder, hidden, AtFlags::empty()).is_ok()
}

/// Returns whether the number of a hidden name shows that it was made in this folder.
pub fn was_made_in(folder: impl AsFd, hidden: &OsStr) -> bool {
    number_of_hidden(hidden.as_encoded_bytes())
        .zip(number_of(folder).ok())
        .is_some_and(|(number, first)| number.wrapping_sub(first) < MAX_ATTEMPTS)
}

/// More than the hidden names in use at a time for one name.
const MAX_ATTEMPTS: u32 = 1000;

/// The permission bits that let other users write to a file, or change the entries of a folder.
/// With an ACL, the group bits are its mask: the most that the ACL allows.
pub const WRITABLE_BY_OTHERS: u32 = 0o022;
