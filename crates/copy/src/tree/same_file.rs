//! Checks whether a source and its target are one file, through all links, or original and copy.

use std::ffi::{CStr, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Stat, fstat, readlinkat, statat};
use underpass_engine::atomic_file::folder_of;
use underpass_engine::{FileId, kept_time, mtime};

use crate::options::{CopyOptions, ExistingFiles};
use crate::tree::dir_pair::DirPair;
use crate::tree::entry::SourceEntry;

/// Returns whether copying `entry` would destroy its source. `stat` is the source, `there` the
/// entry that has the name in the target. They are one file if either the link or its target is
/// `there`, and also if `there` is a link that leads to the source.
pub(crate) fn is_same(
    settings: &CopyOptions,
    folder: &DirPair,
    entry: &SourceEntry,
    stat: &Stat,
    there: &Stat,
) -> bool {
    if settings.removes_existing()
        && let Ok(named) = statat(&folder.source, &entry.name, AtFlags::SYMLINK_NOFOLLOW)
    {
        // Only the name is removed, by which the original may have been opened.
        if is_one(&named, there) {
            return there.st_nlink < 2 || is_same_name(folder, entry);
        }
        if is_link(there) || settings.backup.is_some() && !(entry.follows && is_link(&named)) {
            return false;
        }
    }
    if is_one(stat, there) {
        return true;
    }
    let follow = AtFlags::empty();
    match (is_link(stat), is_link(there)) {
        (true, true) => leads_through(folder, &entry.name, there),
        (true, false) => {
            statat(&folder.source, &entry.name, follow).is_ok_and(|found| is_one(&found, there))
        }
        (false, true) => {
            statat(&folder.target, entry.target(), follow).is_ok_and(|found| is_one(stat, &found))
        }
        (false, false) => false,
    }
}

/// Returns whether source and target are two names of one symbolic link, which needs no copy.
pub(crate) fn is_named_twice(
    settings: &CopyOptions,
    folder: &DirPair,
    entry: &SourceEntry,
    stat: &Stat,
    there: &Stat,
) -> bool {
    let replaces =
        matches!(settings.existing, ExistingFiles::Replace | ExistingFiles::ReplaceOlder);
    is_link(stat)
        && is_one(stat, there)
        && replaces
        && !settings.removes_existing()
        && !is_same_name(folder, entry)
}

/// Returns whether source and target are one name in one folder.
fn is_same_name(folder: &DirPair, entry: &SourceEntry) -> bool {
    let source = Path::new(OsStr::from_bytes(entry.name.to_bytes()));
    let target = Path::new(OsStr::from_bytes(entry.target().to_bytes()));
    // If that cannot be determined, they count as one: an error, which loses nothing.
    let is_one_folder = match (
        statat(&folder.source, folder_of(source), AtFlags::empty()),
        fstat(&folder.target),
    ) {
        (Ok(from), Ok(to)) => is_one(&from, &to),
        _ => true,
    };
    is_one_folder && source.file_name() == target.file_name()
}

/// Returns whether a link leads through `link`: if it were copied over that one, the two would form
/// a loop.
fn leads_through(folder: &DirPair, name: &CStr, link: &Stat) -> bool {
    let mut path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    for _ in 0..MAX_LINKS {
        let Ok(leads) = readlinkat(&folder.source, &path, Vec::new()) else { return false };
        let above = path.parent().unwrap_or(Path::new(""));
        path = above.join(OsStr::from_bytes(leads.to_bytes()));
        // A file that cannot be reached, because its path is too long or it is missing, cannot be
        // lost either.
        let found = statat(&folder.source, &path, AtFlags::SYMLINK_NOFOLLOW);
        let Ok(found) = found else { return false };
        if is_one(&found, link) {
            return true;
        }
    }
    false
}

/// Returns whether this is the copy that an earlier run has made: of the same type and size, and
/// with the time of the original, which a copy gets last. The copy is in `folder`.
pub(crate) fn is_copy(original: &Stat, copy: &Stat, folder: impl AsFd) -> bool {
    let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
    kind(original) == kind(copy)
        && original.st_size == copy.st_size
        && kept_time(mtime(original), copy, folder) == mtime(copy)
}

/// Returns whether the file with the name of an entry is such a copy of it. A link must also lead
/// to the same path, and a device have the same number.
pub(crate) fn is_copy_of(
    folder: &DirPair,
    entry: &SourceEntry,
    original: &Stat,
    copy: &Stat,
) -> bool {
    let leads_alike = || {
        let leads = readlinkat(&folder.source, &entry.name, Vec::new());
        leads.is_ok() && leads == readlinkat(&folder.target, entry.target(), Vec::new())
    };
    is_copy(original, copy, &folder.target)
        && match FileType::from_raw_mode(original.st_mode) {
            FileType::Symlink => leads_alike(),
            FileType::BlockDevice | FileType::CharacterDevice => original.st_rdev == copy.st_rdev,
            _ => true,
        }
}

/// Returns whether the options keep the entry in `folder` in place of an original: with `--update`,
/// if the original is no newer, as far as times are kept there.
pub(crate) fn is_kept(
    settings: &CopyOptions,
    original: &Stat,
    there: &Stat,
    folder: impl AsFd,
) -> bool {
    match settings.existing {
        ExistingFiles::Replace | ExistingFiles::Refuse => false,
        ExistingFiles::ReplaceOlder => kept_time(mtime(original), there, folder) <= mtime(there),
        ExistingFiles::Keep => true,
    }
}

fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

fn is_one(a: &Stat, b: &Stat) -> bool {
    FileId::of(a) == FileId::of(b)
}

/// The kernel follows 40 links, one after the other.
const MAX_LINKS: usize = 40;
