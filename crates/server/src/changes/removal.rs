//! Removes whole folder trees through descriptors, as [`tree`](super::tree) copies them.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, OFlags, Stat, Timespec, fstat, statat, unlinkat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{self, name_of_hidden, remove_folder, stat_entry};
use underpass_engine::wait::lock;
use underpass_engine::{FileId, Version};
use underpass_sys::open_beneath;

use crate::changes::refusal::{ChangeRefusal, FailedEntry, RefusalCause, Result, hidden_inside};
use crate::changes::tree::{for_each_name, kind, open_folder, open_inside, push_inside};
use crate::digest::settle::MAX_CLOCK_TICK;
use crate::files::root::{is_open_leftover, split};

/// Removes the entry of a name, a folder with everything in it.
///
/// # Errors
///
/// `ENOENT` if there is none; otherwise the errors of the system.
///
/// # On failure
///
/// A part of it may be gone; entries that the system refused to remove, and the folders above them,
/// remain.
pub(crate) fn remove(parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    remove_unless(parent, name, &mut |_, _| false)
}

/// Removes an entry that the server itself has given a hidden name: a copy, or the rest of a folder
/// it was removing. Folders in it that are not writable, as their originals may be, are made
/// writable, because no client can remove anything under a hidden name.
///
/// # Errors
///
/// As [`remove_folder`] and unlinkat(2).
pub(crate) fn discard(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match remove_folder(parent, name) {
        // A file or a link.
        Err(Errno::NOTDIR | Errno::LOOP) => unlinkat(parent, name, AtFlags::empty()),
        // What cannot be removed must not keep the rest from being removed.
        removed => removed.or_else(|errno| remove(parent, name).map_err(|_| errno)),
    }
}

/// Removes the copy of a folder, which has this hidden name, or could not get it and has another
/// one that was made of it. What cannot be found or removed now goes with stale uploads.
pub(crate) fn discard_copy(parent: BorrowedFd<'_>, name: &CStr) {
    if discard(parent, name) != Err(Errno::NOENT) {
        return;
    }
    let mut left = Vec::new();
    let is_of_copy = |found: &CStr| name_of_hidden(found.to_bytes()) == Some(name.to_bytes());
    let _ = open_folder(parent, c".").and_then(|folder| {
        atomic_file::for_each_name(&folder, |found| {
            left.extend(is_of_copy(found).then(|| found.to_owned()));
        })
    });
    for found in left {
        let _ = discard(parent, &found);
    }
}

/// Removes the entry of a name, a folder with everything in it except hidden entries and the
/// folders above them. `is_hidden` gets the path of each entry in the folder, and whether that is a
/// folder.
///
/// # Errors
///
/// As [`remove`]; [`hidden_inside`] if anything hidden was found, with the folders that it is in
/// among the entries that failed.
pub(crate) fn remove_visible(
    parent: BorrowedFd<'_>,
    name: &CStr,
    is_hidden: &dyn Fn(&[u8], bool) -> bool,
) -> Result<()> {
    let mut found = false;
    let removed = remove_unless(parent, name, &mut |inside, stat| {
        let is_kept = is_hidden(inside, kind(stat) == FileType::Directory);
        found |= is_kept;
        is_kept
    });
    if !found {
        return removed;
    }
    let mut failed = removed.map_or_else(|refusal| refusal.failed, |()| Vec::new());
    for entry in failed.iter_mut().filter(|entry| entry.cause == RefusalCause::ChangedOriginal) {
        // The client must not learn the name.
        let (folder, _) = split(&entry.path);
        *entry = FailedEntry::new(folder, true, hidden_inside());
    }
    Err(ChangeRefusal { failed, ..hidden_inside() })
}

/// Removes the original of a copy. Entries that are not in the copy in their current version
/// remain, and so do the folders above them.
pub(crate) fn remove_copied(
    parent: BorrowedFd<'_>,
    name: &CStr,
    copied: &CopiedEntries,
) -> Result<()> {
    let mut linked = HashSet::new();
    remove_unless(parent, name, &mut |inside, stat| !copied.has(inside, stat, &mut linked))
}

/// The entries that the copy of a folder has.
///
/// Each is noted before it is copied, so that one that changes during the copy no longer matches
/// its note. One that is moved there is not noted, whatever its times are.
#[derive(Debug)]
pub(crate) struct CopiedEntries {
    began: Timespec,
    /// Hashes of the noted entries, for trees of any size; no client can choose two that are equal.
    noted: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

impl CopiedEntries {
    /// Begins to note entries, a tick later: later changes have later times than all earlier ones.
    pub(crate) fn new() -> Self {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = Timespec::try_from(began).unwrap_or_default();
        thread::sleep(MAX_CLOCK_TICK);
        Self { began, noted: Mutex::default(), hasher: RandomState::new() }
    }

    /// Notes the entry `inside` a folder, which is about to be copied.
    pub(crate) fn note(&self, top: BorrowedFd<'_>, inside: &[u8]) {
        let entry = open_beneath(top, inside, OFlags::PATH | OFlags::NOFOLLOW);
        // An entry that cannot be examined is not noted, and so not removed.
        let Ok(stat) = entry.and_then(fstat) else { return };
        let changed = Version::from_stat(&stat).changed();
        let mut noted = lock(&self.noted);
        noted.insert(self.hash(inside, &stat, Some(changed)));
        if stat.st_nlink > 1 {
            noted.insert(self.hash(inside, &stat, None));
        }
    }

    /// Returns whether an entry is one that was noted. `linked` has the files that were recognized
    /// by another name.
    fn has(&self, inside: &[u8], stat: &Stat, linked: &mut HashSet<FileId>) -> bool {
        let version = Version::from_stat(stat);
        // Removing one name of a file changes the ctime of the others.
        let is_known = linked.contains(&FileId::of(stat));
        let changed = Some(version.changed()).filter(|_| !is_known);
        let is_later = changed.unwrap_or_else(|| version.modified()) > self.began;
        let is_folder = kind(stat) == FileType::Directory;
        let has = lock(&self.noted).contains(&self.hash(inside, stat, changed))
            && (is_folder || !is_later);
        if has && version.links() > 1 {
            linked.insert(FileId::of(stat));
        }
        has
    }

    fn hash(&self, inside: &[u8], stat: &Stat, changed: Option<Timespec>) -> u64 {
        let (version, id) = (Version::from_stat(stat), (stat.st_dev, stat.st_ino));
        if kind(stat) == FileType::Directory {
            return self.hasher.hash_one((inside, id));
        }
        let parts = |time: Timespec| (time.tv_sec, time.tv_nsec);
        let times = (parts(version.modified()), changed.map(parts));
        self.hasher.hash_one((inside, id, version.size(), times))
    }
}

/// Removes an entry, in a folder all but the entries for which `keeps` returns true. If an entry
/// cannot be removed, the rest is removed nevertheless.
fn remove_unless(
    parent: BorrowedFd<'_>,
    name: &CStr,
    keeps: &mut dyn FnMut(&[u8], &Stat) -> bool,
) -> Result<()> {
    let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if kind(&stat) != FileType::Directory {
        return Ok(unlinkat(parent, name, AtFlags::empty())?);
    }
    let folder = open_folder(parent, name).map_err(ChangeRefusal::of_reading)?;
    for attempt in 0..MAX_ATTEMPTS {
        let (top, keeps) = (folder.as_fd(), &mut *keeps);
        let mut removal = Removal { top, keeps, failed: Vec::new(), filled: 0 };
        if removal.empty(&mut Vec::new(), 0)? {
            match unlinkat(parent, name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY) => {}
                removed => return ignore_missing(removed),
            }
        } else if removal.filled < removal.failed.len() {
            return Err(ChangeRefusal::of_entries(removal.failed));
        }
        // An upload that had begun before has put a file into it.
        thread::sleep(RETRY_PAUSE * attempt);
    }
    Err(Errno::NOTEMPTY.into())
}

/// Returns whether nothing is left in a folder but removed files that a process has open, such as
/// this server while it sends one.
pub(crate) fn has_only_leftovers(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    let folder = open_folder(parent, name);
    folder.is_ok_and(|top| only_leftovers(top.as_fd(), &mut Vec::new(), 0).unwrap_or(false))
}

/// Returns the same for the folder `inside` the top one.
fn only_leftovers(top: BorrowedFd<'_>, inside: &mut Vec<u8>, depth: usize) -> Result<bool> {
    let folder = open_inside(top, inside)?;
    let (mut folders, mut has_only) = (Vec::new(), true);
    for_each_name(&folder, depth, &mut |name| {
        if !is_open_leftover(name.to_bytes()) {
            folders.push(name.to_owned());
        }
    })?;
    drop(folder);
    let len = inside.len();
    for name in folders {
        push_inside(inside, &name);
        // A file cannot be opened as a folder.
        has_only = has_only && only_leftovers(top, inside, depth + 1)?;
        inside.truncate(len);
    }
    Ok(has_only)
}

/// The state of removing all in a folder.
struct Removal<'r> {
    top: BorrowedFd<'r>,
    /// Returns whether the entry of this path is kept, a folder with all that is in it.
    keeps: &'r mut dyn FnMut(&[u8], &Stat) -> bool,
    /// The entries that could not be removed, and not the folders above them.
    failed: Vec<FailedEntry>,
    /// The number of those that are folders which were filled during the removal.
    filled: usize,
}

impl Removal<'_> {
    /// Removes everything in the folder `inside` the top one that is not kept; returns whether it
    /// is empty.
    fn empty(&mut self, inside: &mut Vec<u8>, depth: usize) -> Result<bool, ChangeRefusal> {
        let folder = match open_inside(self.top, inside) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(true),
            Err(errno) => return Ok(self.fail(inside, true, ChangeRefusal::of_reading(errno))),
        };
        let (mut folders, mut is_empty) = (Vec::new(), true);
        let len = inside.len();
        let mut names = Vec::new();
        // An abandoned copy may be one level deeper than its original.
        let read = for_each_name(&folder, depth.saturating_sub(1), &mut |name| {
            names.push(name.to_owned());
            // In batches, as rm(1) does: many file systems are slow if names are removed one by one
            // while a folder is read.
            if names.len() == MAX_NAMES {
                for name in names.drain(..) {
                    is_empty &= self.entry(&folder, inside, name, &mut folders);
                    inside.truncate(len);
                }
            }
        });
        match read {
            Err(refusal) if matches!(refusal.cause, RefusalCause::Errno(_)) => {
                is_empty = self.fail(inside, true, refusal);
            }
            read => read?,
        }
        for name in names {
            is_empty &= self.entry(&folder, inside, name, &mut folders);
            inside.truncate(len);
        }
        drop(folder);
        for name in folders {
            push_inside(inside, &name);
            let is_gone = self.empty(inside, depth + 1)? && self.remove_empty(inside, len);
            inside.truncate(len);
            is_empty &= is_gone;
        }
        Ok(is_empty)
    }

    /// Removes an entry of the folder `inside` the top one, to whose path the name is added, or adds
    /// it to `folders`; returns false if it remains.
    fn entry(
        &mut self,
        folder: &OwnedFd,
        inside: &mut Vec<u8>,
        name: CString,
        folders: &mut Vec<CString>,
    ) -> bool {
        push_inside(inside, &name);
        let (removed, is_folder) = match stat_entry(folder, &name) {
            Ok(Some(stat)) if (self.keeps)(inside, &stat) => {
                let is_folder = kind(&stat) == FileType::Directory;
                (Err(changed_original()), is_folder)
            }
            Ok(Some(stat)) if kind(&stat) == FileType::Directory => {
                folders.push(name);
                (Ok(()), true)
            }
            Ok(Some(_)) => match unlinkat(folder, &name, AtFlags::empty()) {
                // It vanishes once it is closed.
                Err(Errno::BUSY) if is_open_leftover(name.to_bytes()) => (Ok(()), false),
                removed => (ignore_missing(removed), false),
            },
            Ok(None) => (Ok(()), false),
            Err(errno) => (Err(errno.into()), false),
        };
        removed.map_or_else(|refusal| self.fail(inside, is_folder, refusal), |()| true)
    }

    /// Removes the empty folder `inside` the top one, whose parent's path has this length; returns
    /// whether it is gone.
    fn remove_empty(&mut self, inside: &[u8], parent_len: usize) -> bool {
        let name = inside[parent_len..].strip_prefix(b"/").unwrap_or(&inside[parent_len..]);
        let removed = open_inside(self.top, &inside[..parent_len])
            .and_then(|parent| unlinkat(parent, name, AtFlags::REMOVEDIR));
        if removed == Err(Errno::NOTEMPTY) && self.failed.len() < MAX_FAILED {
            self.filled += 1;
        }
        match ignore_missing(removed) {
            Ok(()) => true,
            Err(refusal) => self.fail(inside, true, refusal),
        }
    }

    /// Records an entry that remains; returns false, as its folder is not empty.
    fn fail(&mut self, inside: &[u8], is_folder: bool, refusal: ChangeRefusal) -> bool {
        if self.failed.len() < MAX_FAILED {
            self.failed.push(FailedEntry::new(inside, is_folder, refusal));
        }
        false
    }
}

/// Returns the refusal to remove an entry whose copy is not of its current version.
fn changed_original() -> ChangeRefusal {
    let refusal = ChangeRefusal::new(409, "it was changed while it was copied, and is still there");
    ChangeRefusal { cause: RefusalCause::ChangedOriginal, ..refusal }
}

/// Treats an entry that is gone already as removed.
fn ignore_missing(removed: Result<(), Errno>) -> Result<()> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// The maximum number of times that a folder is emptied into which other requests write.
const MAX_ATTEMPTS: u32 = 6;

/// The pause after the second attempt; each further pause is longer by this.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// The maximum number of names that are read before their entries are removed.
const MAX_NAMES: usize = 10_000;

/// The maximum number of failed entries that a response lists.
const MAX_FAILED: usize = 100;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_is_removed_although_uploads_put_files_into_it_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("old/inner")).unwrap();
        fs::write(at("old/inner/file"), "x").unwrap();
        let parent = fs::File::open(folder.path()).unwrap();
        let mut count = 0;
        let mut uploads = |_: &[u8], stat: &Stat| {
            if kind(stat) == FileType::Directory {
                return false;
            }
            count += 1;
            let name = if count % 2 == 0 { "old" } else { "old/inner" };
            if count < 3 {
                fs::write(at(name).join(count.to_string()), "y").unwrap();
            }
            false
        };
        remove_unless(parent.as_fd(), c"old", &mut uploads).unwrap();
        assert!(!at("old").exists() && count == 3, "{count}");
    }

    #[test]
    fn a_move_keeps_entries_that_appear_after_its_copy_began() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("original/inner")).unwrap();
        fs::write(at("original/file"), "x").unwrap();
        fs::hard_link(at("original/file"), at("original/link")).unwrap();
        fs::write(at("original/inner/file"), "y").unwrap();
        let parent = fs::File::open(folder.path()).unwrap();
        let original = open_folder(parent.as_fd(), c"original").unwrap();
        fs::create_dir_all(at("elsewhere/deep")).unwrap();
        fs::write(at("elsewhere/deep/file"), "moved").unwrap();
        // Files get the time of the last tick of the clock.
        thread::sleep(Duration::from_millis(25));
        let copied = CopiedEntries::new();
        for path in ["file", "link", "inner", "inner/file"] {
            copied.note(original.as_fd(), path.as_bytes());
        }
        fs::write(at("original/inner/new"), "z").unwrap();
        // The times of what is in a folder do not tell when it was moved.
        fs::rename(at("elsewhere"), at("original/moved")).unwrap();
        let outcome = remove_copied(parent.as_fd(), c"original", &copied);
        let failed = outcome.unwrap_err().failed;
        let failed: Vec<_> = failed.iter().map(|it| (&*it.path, it.is_folder, it.status)).collect();
        assert_eq!(failed, [(&b"moved"[..], true, 409), (&b"inner/new"[..], false, 409)]);
        assert_eq!(fs::read(at("original/moved/deep/file")).unwrap(), b"moved");
        assert_eq!(fs::read(at("original/inner/new")).unwrap(), b"z");
        assert!(!at("original/file").exists() && !at("original/link").exists());
        assert!(!at("original/inner/file").exists());
        remove(parent.as_fd(), c"original").unwrap();
        assert!(!at("original").exists());
    }
}
