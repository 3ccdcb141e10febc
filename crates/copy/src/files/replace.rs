//! Gives new files the names of old ones, which may get a backup. There is no moment in which the
//! name is free: the old file gets its second name before the new one gets the first (link(2)), or
//! both change places (`RENAME_EXCHANGE`) where there are no hard links or another user owns it.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, RenameFlags, linkat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;
use underpass_engine::atomic_file;

use crate::options::backup::{Backup, BackupControl, number, numbered};
use crate::tree::hidden_names::{self, MAX_ATTEMPTS};

/// Makes something under a hidden name, and gives it the name `name` in place of what has that.
/// Returns what `make` did and the name of the backup.
///
/// # Errors
///
/// As [`hidden_names::claim`], and those of link(2) and rename(2); `EPERM` where nothing can be renamed.
pub(crate) fn replace<T>(
    folder: BorrowedFd<'_>,
    name: &CStr,
    backup: Option<&Backup>,
    mut make: impl FnMut(&CStr) -> Result<T, Errno>,
) -> Result<(T, Option<CString>), Errno> {
    if atomic_file::only_adds(folder) {
        return Err(Errno::PERM);
    }
    for _ in 0..MAX_ATTEMPTS {
        let (made, hidden) = hidden_names::claim(name, &mut make)?;
        match rename_over(folder, (&hidden, name), backup) {
            Ok(kept) => return Ok((made, kept)),
            // Links cannot be locked: another process took it for a leftover.
            Err(Errno::NOENT) => {}
            Err(errno) => {
                // What stays under a hidden name does no harm.
                let _ = unlinkat(folder, &hidden, AtFlags::empty());
                return Err(errno);
            }
        }
    }
    Err(Errno::BUSY)
}

/// Gives what has the name `hidden` the name `name`, and what had that a backup name, which is
/// returned; `None` if nothing had it any more.
///
/// # Errors
///
/// As link(2) and rename(2).
///
/// # On failure
///
/// `name` is what it was, `hidden` stays, and a simple backup of an earlier copy may be gone.
pub(crate) fn rename_over(
    folder: BorrowedFd<'_>,
    (hidden, name): (&CStr, &CStr),
    backup: Option<&Backup>,
) -> Result<Option<CString>, Errno> {
    let Some(backup) = backup else {
        return renameat(folder, hidden, folder, name).map(|()| None);
    };
    for _ in 0..MAX_ATTEMPTS {
        let (kept, is_numbered) = name_of(folder, name, backup)?;
        match link(folder, name, &kept, is_numbered) {
            Ok(()) => {
                return renameat(folder, hidden, folder, name)
                    .inspect_err(|_| _ = unlinkat(folder, &kept, AtFlags::empty()))
                    .map(|()| Some(kept));
            }
            Err(Errno::EXIST) if is_numbered => {}
            // It was removed meanwhile: nothing is lost.
            Err(Errno::NOENT) => return renameat(folder, hidden, folder, name).map(|()| None),
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                match exchange(folder, (hidden, name), (&kept, is_numbered)) {
                    Err(Errno::EXIST) if is_numbered => {}
                    exchanged => return exchanged.map(|()| Some(kept)),
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::BUSY)
}

/// Returns the name of the next backup, and whether it has a number.
fn name_of(folder: BorrowedFd<'_>, name: &CStr, backup: &Backup) -> Result<(CString, bool), Errno> {
    let name = name.to_bytes();
    let highest = match backup.control {
        BackupControl::Simple => None,
        BackupControl::Numbered | BackupControl::Existing => highest(folder, name)?,
    };
    let (bytes, is_numbered) = match highest {
        Some(highest) => (numbered(name, highest + 1), true),
        None if backup.control == BackupControl::Numbered => (numbered(name, 1), true),
        None => (backup.simple(name), false),
    };
    CString::new(bytes).map(|name| (name, is_numbered)).map_err(|_| Errno::INVAL)
}

/// Returns the highest number of a backup of `name`.
fn highest(folder: BorrowedFd<'_>, name: &[u8]) -> Result<Option<u64>, Errno> {
    let mut highest = None;
    atomic_file::for_each_name(folder, |found| {
        highest = highest.max(number(name, found.to_bytes()));
    })?;
    Ok(highest)
}

/// Gives a file its backup name as a second name. An earlier simple backup is replaced.
fn link(folder: BorrowedFd<'_>, name: &CStr, kept: &CStr, is_numbered: bool) -> Result<(), Errno> {
    match linkat(folder, name, folder, kept, AtFlags::empty()) {
        Err(Errno::EXIST) if !is_numbered => {}
        linked => return linked,
    }
    let link = |hidden: &CStr| linkat(folder, name, folder, hidden, AtFlags::empty());
    let ((), hidden) = hidden_names::claim(kept, link)?;
    let renamed = renameat(folder, &hidden, folder, kept);
    // It stays if both names are the same file already, and if it could not be renamed.
    match unlinkat(folder, &hidden, AtFlags::empty()) {
        Err(Errno::NOENT) | Ok(()) => renamed,
        Err(errno) => renamed.and(Err(errno)),
    }
}

/// Gives the new file the backup name, and has both change places.
fn exchange(
    folder: BorrowedFd<'_>,
    (hidden, name): (&CStr, &CStr),
    (kept, is_numbered): (&CStr, bool),
) -> Result<(), Errno> {
    match is_numbered {
        true => atomic_file::rename_new(folder, hidden, folder, kept)?,
        false => renameat(folder, hidden, folder, kept)?,
    }
    let swapped = match renameat_with(folder, kept, folder, name, RenameFlags::EXCHANGE) {
        // This file system cannot do that: one after the other.
        Err(Errno::INVAL | Errno::NOSYS) => {
            renameat(folder, kept, folder, hidden)?;
            renameat(folder, name, folder, kept)?;
            return renameat(folder, hidden, folder, name)
                .inspect_err(|_| _ = renameat(folder, kept, folder, name));
        }
        swapped => swapped,
    };
    swapped.inspect_err(|_| _ = renameat(folder, kept, folder, hidden))
}
