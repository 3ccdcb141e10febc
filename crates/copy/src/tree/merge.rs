//! Merges a hidden folder whose final name another process has taken into the folder that has it,
//! and removes hidden folders that dead processes have left.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, Timestamps, flock, fstat,
    futimens, linkat, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use underpass_engine::atomic_file::{name_of_hidden, remove_folder};
use underpass_engine::{FileId, atomic_file, is_file, is_folder};

use crate::attributes::times;
use crate::files::folder::open_folder;
use crate::files::replace::{Backups, replace};
use crate::options::{Follow, Settings};
use crate::tree::dir_pair::{DirOrigin, DirPair};
use crate::tree::hidden_names::HiddenNamesInUse;
use crate::tree::same_file::{is_copy, is_kept};
use crate::tree::{hidden_names, marker};

/// Two folders that are merged, and the names still to be moved from one to the other.
struct MergeLevel {
    from: OwnedFd,
    to: OwnedFd,
    names: Vec<CString>,
    /// The times that `to` gets once everything is in it, if folders that exist get times.
    times: Option<Timestamps>,
}

impl MergeLevel {
    /// Begins to merge two folders. `stat` has the times of the original.
    fn new(
        settings: &Settings<'_>,
        from: OwnedFd,
        to: OwnedFd,
        stat: Option<&Stat>,
    ) -> Result<Self, Errno> {
        let names = atomic_file::names(&from)?;
        let is_timed = settings.preserve.keeps_times_of_folder(settings.resume);
        Ok(Self { from, to, names, times: stat.filter(|_| is_timed).map(times) })
    }

    fn finish(&self) {
        if let Some(times) = &self.times {
            // The folder of another user keeps its own.
            let _ = futimens(&self.to, times);
        }
    }
}

/// Moves everything in a folder into another one, where another process has put its own copy. Files
/// there are replaced, and get a backup if the options want one, as by any later copy, unless the
/// options keep them, or `stays` returns `true` for one. `stat` has the times of the original.
///
/// # Errors
///
/// As rename(2): `EISDIR` or `ENOTDIR` if a file and a folder have the same name.
pub(crate) fn merge(
    settings: &Settings<'_>,
    from: OwnedFd,
    to: OwnedFd,
    stat: Option<&Stat>,
    stays: &mut dyn FnMut(&Clash<'_>) -> bool,
) -> Result<(), Errno> {
    // A deep tree would need a deep stack otherwise.
    let mut levels = vec![MergeLevel::new(settings, from, to, stat)?];
    // The names of all levels but the first.
    let mut path = PathBuf::new();
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            level.finish();
            levels.pop();
            if let (Some(above), Some(done)) = (levels.last(), path.file_name()) {
                unlinkat(&above.from, done, AtFlags::REMOVEDIR)?;
                path.pop();
            }
            continue;
        };
        let (from, to) = (&level.from, &level.to);
        match renameat_with(from, &name, to, &name, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::INVAL | Errno::NOSYS) => {}
            renamed => {
                renamed?;
                continue;
            }
        }
        if marker::is_name(&name) {
            // The other process's marker covers files that were there before this one's.
            unlinkat(from, &name, AtFlags::empty())?;
            continue;
        }
        let look = |folder: &OwnedFd| statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW);
        let (mine, there) = (look(from)?, look(to));
        let below = path.join(OsStr::from_bytes(name.to_bytes()));
        if is_folder(&mine) && there.is_ok_and(|there| is_folder(&there)) {
            let (from, to) = (open_folder(from, &name)?, open_folder(to, &name)?);
            levels.push(MergeLevel::new(settings, from, to, Some(&mine))?);
            path = below;
        } else if is_folder(&mine) || there.is_ok_and(|there| is_folder(&there)) {
            // Only one of the two is a folder, so this returns the kernel's error.
            renameat(from, &name, to, &name)?;
        } else if there.is_ok_and(|there| {
            let clash = Clash { folder: to, name: &name, path: &below, there: &there };
            // Both processes have linked the same original; rename(2) does nothing then.
            let is_one = FileId::of(&mine) == FileId::of(&there);
            is_one || is_kept(settings, &mine, &there, to) || stays(&clash)
        }) {
            unlinkat(from, &name, AtFlags::empty())?;
        } else {
            replace_in(from, to, &name, settings.backups.as_ref())?;
        }
    }
    Ok(())
}

/// Renames an entry of a folder that is being copied, without replacing anything.
///
/// # Errors
///
/// As [`atomic_file::rename_new`].
pub(crate) fn rename_new(parent: &DirPair, from: &CStr, to: &CStr) -> Result<(), Errno> {
    let target = &parent.target;
    if parent.origin == DirOrigin::Fresh {
        return renameat(target, from, target, to);
    }
    atomic_file::rename_new(target, from, target, to)
}

/// A file with the same name as a file to be moved.
pub(crate) struct Clash<'c> {
    pub(crate) folder: &'c OwnedFd,
    pub(crate) name: &'c CStr,
    /// Its path below the folder that is merged.
    pub(crate) path: &'c Path,
    pub(crate) there: &'c Stat,
}

/// Moves a file in place of another one, which gets a backup. Until then it keeps its first name,
/// too, so that no other run treats the hidden one as a leftover.
fn replace_in(
    from: &OwnedFd,
    to: &OwnedFd,
    name: &CStr,
    backups: Option<&Backups<'_>>,
) -> Result<(), Errno> {
    let Some(backups) = backups else { return renameat(from, name, to, name) };
    let make = |hidden: &CStr| match linkat(from, name, to, hidden, AtFlags::empty()) {
        Err(errno) if atomic_file::lacks_links(errno, to) => {
            atomic_file::rename_new(from, name, to, hidden)
        }
        linked => linked,
    };
    replace(to.as_fd(), name, Some(&mut backups.naming()), make)?;
    match unlinkat(from, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Removes hidden leftovers of dead processes from a folder in which the final files are now
/// complete. `is_copied` tells whether a name was copied by this command.
///
/// A live process locks the entries that it uses; links cannot be locked, and it makes them again.
/// These stay: special files, entries that belong neither to this user nor to the owner of the
/// copy, files with a second name other than the final one, entries with neither a mark nor the
/// number of this folder unless they are empty and private like new ones, entries of the source.
pub(crate) fn sweep(
    settings: &Settings<'_>,
    names: &HiddenNamesInUse,
    folder: &DirPair,
    is_copied: impl Fn(&CStr) -> bool,
) {
    if folder.origin == DirOrigin::Fresh || settings.dry_run {
        return;
    }
    let target = &folder.target;
    // A folder that cannot be listed stays, which does no harm.
    let Ok(found) = atomic_file::names(target) else { return };
    for hidden in found {
        let Some(name) = meant(&hidden) else { continue };
        let is_left = is_copied(&name)
            && statat(target, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            && !folder.has_source(&hidden)
            && !names.is_entry(target, &hidden);
        if is_left {
            remove(settings, target, &hidden, &name);
        }
    }
}

/// Removes from a hidden folder of a dead process everything that may be an incomplete copy of an
/// entry of `source`, and returns the state of the folder. Without `--resume` nothing is kept.
///
/// # Errors
///
/// As flock(2), stat(2) and unlink(2).
pub(crate) fn prune(
    settings: &Settings<'_>,
    source: &OwnedFd,
    folder: &OwnedFd,
) -> Result<DirOrigin, Errno> {
    // This process holds the lock already, unless the file system has no locks.
    flock(folder, FlockOperation::NonBlockingLockExclusive)?;
    for name in atomic_file::names(folder)? {
        if !settings.resume || !may_stay(settings, source, folder, &name)? {
            remove_any(folder, &name, &statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW)?)?;
        }
    }
    Ok(if settings.resume { DirOrigin::Adopted } else { DirOrigin::Fresh })
}

/// Returns whether an entry of a hidden folder is a complete copy, or a part that a later run can
/// resume.
fn may_stay(
    settings: &Settings<'_>,
    source: &OwnedFd,
    folder: &OwnedFd,
    name: &CStr,
) -> Result<bool, Errno> {
    let flags = match settings.follow {
        Follow::Always => AtFlags::empty(),
        _ => AtFlags::SYMLINK_NOFOLLOW,
    };
    let copy = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(match statat(source, name, flags) {
        // A folder that has its final name contains no parts.
        Ok(original) if is_folder(&copy) => is_folder(&original),
        Ok(original) => is_copy(&original, &copy, folder),
        Err(Errno::NOENT) => {
            marker::is_name(name)
                || meant(name).is_some_and(|meant| statat(source, &meant, flags).is_ok())
        }
        Err(errno) => return Err(errno),
    })
}

/// A leftover that no other process can use until this is dropped.
pub(crate) enum Leftover {
    /// It is locked until the descriptor is closed.
    Locked { _file: OwnedFd },
    /// It cannot be locked, such as a link; a process that finds it gone makes it again.
    Unlockable,
}

/// Locks a possible leftover of a dead process; `None` if another process uses it, or that cannot
/// be determined.
pub(crate) fn lock_leftover(folder: &OwnedFd, hidden: &CStr) -> Option<Leftover> {
    let stat = statat(folder, hidden, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if !is_folder(&stat) && !is_file(&stat) {
        return Some(Leftover::Unlockable);
    }
    let file = openat(folder, hidden, LEFTOVER, Mode::empty()).ok()?;
    let is_locked = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        && atomic_file::try_lock(&file, folder, hidden);
    is_locked.then_some(Leftover::Locked { _file: file })
}

/// Returns whether an earlier run of this user made a folder with a hidden name. Its owner alone
/// does not prove that: another user who may write to `parent` can rename any folder in it.
pub(crate) fn is_left_folder(
    settings: &Settings<'_>,
    folder: &OwnedFd,
    parent: &OwnedFd,
    hidden: &CStr,
) -> bool {
    fstat(folder).is_ok_and(|stat| {
        // A process killed before it could mark its folder has put nothing in it.
        let is_new = || stat.st_mode & 0o777 == 0o700 && marker::is_empty(folder);
        stat.st_uid == settings.owner.0
            && (hidden_names::is_marked(folder, parent, hidden) || is_new())
    })
}

/// Removes a leftover of a dead process of this user with a hidden name, if it has the mark of that
/// name. Returns whether the name can be used: `false` if a process uses it.
pub(crate) fn clear_name(settings: &Settings<'_>, folder: &OwnedFd, name: &CStr) -> bool {
    let Ok(file) = openat(folder, name, LEFTOVER, Mode::empty()) else { return true };
    let Ok(stat) = fstat(&file) else { return true };
    if stat.st_uid != settings.owner.0 || hidden_names::has_mark(&file, name) != Some(true) {
        return true;
    }
    atomic_file::try_lock(&file, folder, name) && remove_any(folder, name, &stat).is_ok()
}

/// Removes a file, or a folder with everything in it.
fn remove_any(folder: &OwnedFd, name: &CStr, stat: &Stat) -> Result<(), Errno> {
    if is_folder(stat) {
        remove_folder(folder, name)
    } else {
        unlinkat(folder, name, AtFlags::empty())
    }
}

/// Removes an entry whose hidden name stands for `name`, unless a process uses it.
fn remove(settings: &Settings<'_>, folder: &OwnedFd, hidden: &CStr, name: &CStr) {
    let look = |name: &CStr| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    let (Ok(stat), Ok(whole)) = (look(hidden), look(name)) else { return };
    // With -p a file gets its owner before its name.
    let is_folder = is_folder(&stat);
    if stat.st_uid != settings.owner.0 && (is_folder || stat.st_uid != whole.st_uid) {
        return;
    }
    let is_same = FileId::of(&stat) == FileId::of(&whole);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {}
        FileType::RegularFile if stat.st_nlink == 1 || is_same => {}
        FileType::Symlink => {
            if atomic_file::was_made_in(folder, OsStr::from_bytes(hidden.to_bytes())) {
                // An entry that cannot be removed does no harm.
                let _ = unlinkat(folder, hidden, AtFlags::empty());
            }
            return;
        }
        _ => return,
    }
    let Ok(file) = openat(folder, hidden, LEFTOVER, Mode::empty()) else { return };
    let is_it = fstat(&file).is_ok_and(|it| FileId::of(&it) == FileId::of(&stat));
    let is_left = if is_folder {
        is_left_folder(settings, &file, folder, hidden)
    } else {
        is_same
            || hidden_names::is_marked(&file, folder, hidden)
            || hidden_names::is_new_part(&file)
    };
    if !is_left && !is_folder {
        let hidden = OsStr::from_bytes(hidden.to_bytes());
        atomic_file::remove_left_over(folder, hidden, whole.st_uid);
    }
    if !is_it || !is_left || !atomic_file::try_lock(&file, folder, hidden) {
        return;
    }
    // It is locked during the removal, so that no other process resumes it.
    let _ = remove_any(folder, hidden, &stat);
}

/// Returns the final name that a hidden name stands for.
pub(crate) fn meant(hidden: &CStr) -> Option<CString> {
    let name = name_of_hidden(hidden.to_bytes())?;
    CString::new(name).ok().filter(|_| !marker::is_name(hidden))
}

/// The flags for opening a possible leftover.
const LEFTOVER: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
