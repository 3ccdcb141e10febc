//! Hidden names, which files and folders have until they are complete.
//!
//! Every user can make such names, and a source may have entries with them. So leftovers of a
//! killed process are recognized by a mark: an attribute with the hidden name and the inode number,
//! which a copy of the entry does not share. It counts only if no other user may write to the
//! entry, and so set the mark. A run also remembers the hidden names that it uses, so that no entry
//! is copied to one of them.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Mutex;

use rustix::fs::{
    AtFlags, Stat, StatxFlags, XattrFlags, fgetxattr, fsetxattr, fstat, fstatvfs, statx,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use underpass_engine::atomic_file::{
    self, MAX_NAME, WRITABLE_BY_OTHERS, fingerprint, hidden_name, name_of_hidden, remove_attribute,
};
use underpass_engine::wait::lock;
use underpass_engine::{FileId, birth_time, is_file, is_folder};

use crate::files::file_system::{self, BTRFS};
use crate::options::preserve::HIDDEN_MARK;
use crate::tree::dir_pair::DirPair;

/// Returns the hidden name of an entry that is to become `name`. The same number gives the same
/// name, so that a later run finds the leftovers of an earlier one.
pub(crate) fn hidden(name: &CStr, number: Option<u32>) -> CString {
    let hidden = hidden_name(OsStr::from_bytes(name.to_bytes()), number);
    // A file name contains no zero byte, and none was added.
    CString::new(hidden.into_vec()).unwrap_or_default()
}

/// Calls `make` with hidden names of a folder until one is free. Their numbers show that they were
/// made there, as those of an [`AtomicFile`](atomic_file::AtomicFile) do. An `AtomicFile` begins
/// with the first number and removes entries without a lock, and a link cannot be locked: so these
/// names have later numbers.
///
/// # Errors
///
/// Those of `make` but `EEXIST`; `EBUSY` if many names are taken.
pub(crate) fn claim<T>(
    folder: impl AsFd,
    name: &CStr,
    mut make: impl FnMut(&CStr) -> Result<T, Errno>,
) -> Result<(T, CString), Errno> {
    let first = atomic_file::number_of(folder)?;
    for further in LINKS {
        let hidden = hidden(name, Some(first.wrapping_add(further)));
        match make(&hidden) {
            Err(Errno::EXIST) => {}
            made => return made.map(|made| (made, hidden)),
        }
    }
    Err(Errno::BUSY)
}

/// The offsets from the first number of a folder for anything but an `AtomicFile`. All of these
/// numbers are among those that [`number_of`](atomic_file::number_of) tells of.
const LINKS: Range<u32> = 500..1000;

/// Returns the hidden name of a part of a large file, which only a copy of that very version
/// resumes: the ctime in it detects a file that was written in place and got its old mtime
/// back.
pub(crate) fn partial_name(name: &CStr, stat: &Stat) -> CString {
    let facts = format!(
        "{}:{}:{}.{}:{}.{}",
        stat.st_ino,
        stat.st_size,
        stat.st_mtime,
        stat.st_mtime_nsec,
        stat.st_ctime,
        stat.st_ctime_nsec
    );
    let number = fingerprint(facts.as_bytes()) as u32;
    hidden(name, Some(number))
}

/// Returns a number by which a later run recognizes a folder. An inode number may be reused, but
/// not together with its birth time. The device number may change with each mount, and counts only
/// where the birth time is unknown.
///
/// Snapshots of btrfs share both, and are distinguished by their subvolume number.
pub(crate) fn identity(source: &OwnedFd) -> u32 {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found = statx(source, c"", AtFlags::EMPTY_PATH, wanted).ok();
    let born = found.and_then(|found| Some((found.stx_ino, birth_time(&found)?)));
    let mut facts = match born {
        Some((inode, (seconds, nanoseconds))) => format!("{inode}:{seconds}.{nanoseconds}"),
        None => fstat(source)
            .map_or_else(|_| String::new(), |stat| format!("{}:{}", stat.st_dev, stat.st_ino)),
    };
    if file_system::name(source) == BTRFS
        && let Ok(system) = fstatvfs(source)
    {
        facts += &format!(":{}", system.f_fsid);
    }
    fingerprint(facts.as_bytes()) as u32
}

/// Returns whether a name has the form of a hidden one, for whatever reason an entry has it.
pub(crate) fn is_hidden(name: &CStr) -> bool {
    name_of_hidden(name.to_bytes()).is_some()
}

/// The names in targets that are hidden ones, in use by this run: as a hidden name, or as that of
/// an entry which is copied.
#[derive(Debug, Default)]
pub(crate) struct HiddenNamesInUse(Mutex<HashMap<(FileId, CString), NameUse>>);

/// The use of a hidden name by a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameUse {
    /// For a file or folder that is not complete yet.
    Hidden,
    /// For the copy of an entry with this very name.
    Entry,
}

impl HiddenNamesInUse {
    /// Takes a name in a folder, and returns `false` if it is in use for something else.
    pub(crate) fn take(&self, folder: &OwnedFd, name: &CStr, by: NameUse) -> bool {
        let Ok(stat) = fstat(folder) else { return false };
        let key = (FileId::of(&stat), name.to_owned());
        *lock(&self.0).entry(key).or_insert(by) == by
    }

    /// Returns whether a name in a folder is that of an entry which this run copies.
    pub(crate) fn is_entry(&self, folder: &OwnedFd, name: &CStr) -> bool {
        let Ok(stat) = fstat(folder) else { return true };
        lock(&self.0).get(&(FileId::of(&stat), name.to_owned())) == Some(&NameUse::Entry)
    }

    /// Takes a hidden name in the target of a folder, unless it is in use for the copy of an entry,
    /// or will be.
    pub(crate) fn take_hidden(&self, folder: &DirPair, hidden: &CStr) -> bool {
        !folder.has_source(hidden) && self.take(&folder.target, hidden, NameUse::Hidden)
    }

    /// Gives back a name.
    pub(crate) fn give_back(&self, folder: &OwnedFd, name: &CStr) {
        if let Ok(stat) = fstat(folder) {
            lock(&self.0).remove(&(FileId::of(&stat), name.to_owned()));
        }
    }
}

/// Marks an entry that was made under a hidden name, so that a later run recognizes it.
pub(crate) fn mark(file: impl AsFd, hidden: &CStr) {
    // A later run ignores an entry without a mark, unless the file system has no attributes.
    if let Ok(value) = fstat(&file).map(|stat| mark_of(&stat, hidden)) {
        let _ = fsetxattr(&file, HIDDEN_MARK, &value, XattrFlags::empty());
    }
}

/// Returns whether a file with the name of a part may have been made by a process of this user
/// that was killed before it could mark it: nothing was written to it then.
pub(crate) fn is_new_part(file: impl AsFd) -> bool {
    fstat(&file).is_ok_and(|stat| {
        is_file(&stat)
            && stat.st_size == 0
            && stat.st_nlink == 1
            && stat.st_uid == geteuid().as_raw()
            && stat.st_mode & 0o7777 == PART_MODE
    })
}

/// The mode of a part: no other user may write to it, and its owner may resume it, whatever the
/// original allows.
pub(crate) const PART_MODE: u32 = 0o600;

/// Removes the mark, which no entry has under its final name.
///
/// # Errors
///
/// As fremovexattr(2), if there is a mark.
pub(crate) fn unmark(file: impl AsFd) -> Result<(), Errno> {
    remove_attribute(file, HIDDEN_MARK)
}

/// Returns whether an entry with a hidden name was made under this name, and was not renamed or
/// changed by another user. Where there are no attributes, no other user may be able to rename
/// entries in the folder.
pub(crate) fn is_marked(file: impl AsFd, folder: &OwnedFd, hidden: &CStr) -> bool {
    has_mark(file, hidden).unwrap_or_else(|| is_private(folder))
}

/// Returns whether a file or folder has the mark of this hidden name, and no other user could have
/// set it; `None` where there are no attributes.
pub(crate) fn has_mark(file: impl AsFd, hidden: &CStr) -> Option<bool> {
    let mut value = [0; MAX_NAME + 32];
    match fgetxattr(&file, HIDDEN_MARK, &mut value[..]) {
        Ok(len) => Some(fstat(&file).is_ok_and(|stat| {
            let is_ours_alone =
                stat.st_mode & WRITABLE_BY_OTHERS == 0 && (is_folder(&stat) || stat.st_nlink == 1);
            is_ours_alone && mark_of(&stat, hidden) == value[..len]
        })),
        Err(Errno::OPNOTSUPP) => None,
        Err(_) => Some(false),
    }
}

fn mark_of(stat: &Stat, hidden: &CStr) -> Vec<u8> {
    let number = format!("/{}", stat.st_ino);
    [hidden.to_bytes(), number.as_bytes()].concat()
}

/// Returns whether no other user may rename the entries of this user in a folder.
fn is_private(folder: &OwnedFd) -> bool {
    let others = |mode: u32| mode & WRITABLE_BY_OTHERS != 0 && mode & 0o1000 == 0;
    fstat(folder)
        .is_ok_and(|stat| [0, geteuid().as_raw()].contains(&stat.st_uid) && !others(stat.st_mode))
}

/// Returns whether a folder belongs to this user, and no other user may change its entries.
pub(crate) fn is_own_folder(folder: &OwnedFd) -> bool {
    fstat(folder).is_ok_and(|stat| stat.st_mode & WRITABLE_BY_OTHERS == 0)
        && atomic_file::is_ours(folder, folder) == Ok(true)
}

/// Returns whether no other user may enter a folder of this user, and so change anything below.
pub(crate) fn is_closed(folder: &OwnedFd) -> bool {
    fstat(folder).is_ok_and(|stat| stat.st_mode & 0o077 == 0) && is_own_folder(folder)
}

/// The number of attempts to find a free name: more than killed processes leave taken.
pub(crate) const MAX_ATTEMPTS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_known_again_whatever_number_its_device_gets() {
        let stat = rustix::fs::stat(".").unwrap();
        let (mut mounted_again, mut changed) = (stat, stat);
        mounted_again.st_dev += 1;
        changed.st_ctime_nsec ^= 1;
        assert_eq!(partial_name(c"name", &stat), partial_name(c"name", &mounted_again));
        assert_ne!(partial_name(c"name", &stat), partial_name(c"name", &changed));
    }

    #[test]
    fn a_name_is_either_hidden_or_that_of_an_entry() {
        let folder = OwnedFd::from(std::fs::File::open(".").unwrap());
        let names = HiddenNamesInUse::default();
        for (name, first, second) in
            [(c"a", NameUse::Hidden, NameUse::Entry), (c"b", NameUse::Entry, NameUse::Hidden)]
        {
            assert!(names.take(&folder, name, first) && names.take(&folder, name, first));
            assert!(!names.take(&folder, name, second));
            names.give_back(&folder, name);
            assert!(names.take(&folder, name, second));
        }
    }
}
