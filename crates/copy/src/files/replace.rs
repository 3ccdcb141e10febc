//! Gives new files the names of old ones, which may get a backup. The name is never free: either
//! the old file gets its backup name before the new one gets the first (link(2)), or both change
//! places (`RENAME_EXCHANGE`) where there are no hard links or another user owns the old file.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard};

use rustix::fs::{AtFlags, RenameFlags, Stat, linkat, renameat, renameat_with, statat, unlinkat};
use rustix::io::Errno;
use underpass_engine::wait::lock;
use underpass_engine::{FileId, atomic_file};

use crate::options::backup::{Backup, BackupControl, number, numbered};
use crate::tree::hidden_names::{self, MAX_ATTEMPTS};

/// The backups of one copy. None takes the name of an entry that the copy has made: a source may
/// have the name that another one's backup would get.
#[derive(Debug)]
pub(crate) struct Backups<'a> {
    how: &'a Backup,
    /// Each copy, and each backup. Held while something gets its name, so that no other thread
    /// takes the name of the backup first.
    named: Mutex<HashSet<FileId>>,
}

impl<'a> Backups<'a> {
    /// Starts a copy that has made nothing yet.
    pub(crate) fn new(how: &'a Backup) -> Self {
        Self { how, named: Mutex::default() }
    }

    /// Keeps all other threads from giving names until it is dropped.
    pub(crate) fn naming(&self) -> Naming<'_> {
        let named = lock(&self.named);
        Naming { how: self.how, named }
    }
}

/// The right to name backups, held by one thread at a time.
#[derive(Debug)]
pub(crate) struct Naming<'b> {
    how: &'b Backup,
    named: MutexGuard<'b, HashSet<FileId>>,
}

impl Naming<'_> {
    /// Remembers the entry that has this name now.
    pub(crate) fn add(&mut self, folder: BorrowedFd<'_>, name: &CStr, backup: Option<&CStr>) {
        for name in [Some(name), backup].into_iter().flatten() {
            self.named.extend(look(folder, name).as_ref().map(FileId::of));
        }
    }
}

/// Makes an entry with the name `name`, which is free if `is_new`. Otherwise the entry that has it
/// gives way as in [`replace`].
///
/// # Errors
///
/// Those of `make`, and as [`replace`].
pub(crate) fn place<T>(
    folder: BorrowedFd<'_>,
    name: &CStr,
    is_new: bool,
    backups: Option<&Backups<'_>>,
    mut make: impl FnMut(&CStr) -> Result<T, Errno>,
) -> Result<(T, Option<CString>), Errno> {
    let mut naming = backups.map(Backups::naming);
    if !is_new {
        return replace(folder, name, naming.as_mut(), make);
    }
    let made = make(name)?;
    if let Some(naming) = &mut naming {
        naming.add(folder, name, None);
    }
    Ok((made, None))
}

/// Makes an entry under a hidden name, and gives it the name `name` in place of the entry that has
/// that. Returns the result of `make` and the name of the backup.
///
/// # Errors
///
/// As [`hidden_names::claim`], link(2) and rename(2); `EPERM` where nothing can be renamed.
pub(crate) fn replace<T>(
    folder: BorrowedFd<'_>,
    name: &CStr,
    mut naming: Option<&mut Naming<'_>>,
    mut make: impl FnMut(&CStr) -> Result<T, Errno>,
) -> Result<(T, Option<CString>), Errno> {
    if atomic_file::only_adds(folder) {
        return Err(Errno::PERM);
    }
    for _ in 0..MAX_ATTEMPTS {
        let (made, hidden) = hidden_names::claim(folder, name, &mut make)?;
        match rename_over(folder, &hidden, name, naming.as_deref_mut()) {
            Ok(kept) => {
                // It stays if another process has just linked the same file.
                let _ = unlinkat(folder, &hidden, AtFlags::empty());
                return Ok((made, kept));
            }
            // Links cannot be locked: another process removed it as a leftover.
            Err(Errno::NOENT) => {}
            Err(errno) => {
                // A leftover under a hidden name does no harm.
                let _ = unlinkat(folder, &hidden, AtFlags::empty());
                return Err(errno);
            }
        }
    }
    Err(Errno::BUSY)
}

/// Renames `hidden` to `name`, and the entry that had that name to a backup name, which is
/// returned; `None` if no entry had it any more.
///
/// # Errors
///
/// As link(2) and rename(2).
///
/// # On failure
///
/// `name` is unchanged, `hidden` stays, and a simple backup of an earlier copy may be gone.
pub(crate) fn rename_over(
    folder: BorrowedFd<'_>,
    hidden: &CStr,
    name: &CStr,
    naming: Option<&mut Naming<'_>>,
) -> Result<Option<CString>, Errno> {
    let Some(naming) = naming else {
        return renameat(folder, hidden, folder, name).map(|()| None);
    };
    let kept = back_up(folder, hidden, name, naming)?;
    naming.add(folder, name, kept.as_deref());
    Ok(kept)
}

/// Does what [`rename_over`] does, where an entry has the name.
fn back_up(
    folder: BorrowedFd<'_>,
    hidden: &CStr,
    name: &CStr,
    naming: &Naming<'_>,
) -> Result<Option<CString>, Errno> {
    for _ in 0..MAX_ATTEMPTS {
        let kept = BackupName::next(folder, name, naming)?;
        match link(folder, name, &kept) {
            Ok(()) => {
                return renameat(folder, hidden, folder, name)
                    .inspect_err(|_| _ = unlinkat(folder, &kept.name, AtFlags::empty()))
                    .map(|()| Some(kept.name));
            }
            Err(Errno::EXIST) if kept.is_numbered => {}
            // It has been removed: nothing is lost.
            Err(Errno::NOENT) => return renameat(folder, hidden, folder, name).map(|()| None),
            Err(errno) if atomic_file::lacks_links(errno, folder) => {
                match exchange(folder, hidden, name, &kept) {
                    Err(Errno::EXIST) if kept.is_numbered => {}
                    exchanged => return exchanged.map(|()| Some(kept.name)),
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::BUSY)
}

/// The name of a backup.
struct BackupName {
    name: CString,
    /// Whether it has a number, so that no other backup has it.
    is_numbered: bool,
}

impl BackupName {
    /// Returns the name of the next backup of `name`.
    fn next(folder: BorrowedFd<'_>, name: &CStr, naming: &Naming<'_>) -> Result<Self, Errno> {
        let how = naming.how;
        let name = name.to_bytes();
        let highest = match how.control {
            BackupControl::Simple => None,
            BackupControl::Numbered => highest(folder, name)?,
            // A folder that may not be read shows no numbers.
            BackupControl::Existing => match highest(folder, name) {
                Err(Errno::ACCESS) => None,
                found => found?,
            },
        };
        let (bytes, is_numbered) = match highest {
            Some(highest) => (numbered(name, highest + 1), true),
            None if how.control == BackupControl::Numbered => (numbered(name, 1), true),
            None => (how.simple(name), false),
        };
        let mut name = CString::new(bytes).map_err(|_| Errno::INVAL)?;
        while !is_numbered
            && look(folder, &name).is_ok_and(|there| naming.named.contains(&FileId::of(&there)))
        {
            name = CString::new(how.simple(name.to_bytes())).map_err(|_| Errno::INVAL)?;
        }
        Ok(Self { name, is_numbered })
    }
}

fn look(folder: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
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
fn link(folder: BorrowedFd<'_>, name: &CStr, backup: &BackupName) -> Result<(), Errno> {
    let kept = &backup.name;
    match linkat(folder, name, folder, kept, AtFlags::empty()) {
        Err(Errno::EXIST) if !backup.is_numbered => {}
        linked => return linked,
    }
    let link = |hidden: &CStr| linkat(folder, name, folder, hidden, AtFlags::empty());
    let ((), hidden) = hidden_names::claim(folder, kept, link)?;
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
    hidden: &CStr,
    name: &CStr,
    backup: &BackupName,
) -> Result<(), Errno> {
    let kept = &backup.name;
    if backup.is_numbered {
        atomic_file::rename_new(folder, hidden, folder, kept)?
    } else {
        renameat(folder, hidden, folder, kept)?
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
