//! Removes whole folder trees through descriptors, as [`tree`](super::tree) copies them.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Stat, Timespec, statat, unlinkat};
use rustix::io::Errno;
use underpass_engine::{FileId, Version};

use crate::changes::refusal::{ChangeRefusal, FailedEntry, Result};
use crate::changes::tree::{kind, names, open_folder, open_inside, push_inside, stat_entry};

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
    remove_unless(parent, name, &mut |_| false)
}

/// Removes the original of a copy that was begun at this time. What was changed since then, or came
/// since then, may not be in the copy: it remains, and so do the folders above it.
pub(crate) fn remove_copied(parent: BorrowedFd<'_>, name: &CStr, began: SystemTime) -> Result<()> {
    let began = began.duration_since(UNIX_EPOCH).unwrap_or_default();
    let began = Timespec::try_from(began).unwrap_or_default();
    let mut linked = HashSet::new();
    let mut is_changed = |stat: &Stat| {
        let version = Version::from_stat(stat);
        // Removing one name of a file changes the ctime of the others.
        let is_known = linked.contains(&FileId::of(stat));
        if version.links() > 1 {
            linked.insert(FileId::of(stat));
        }
        (if is_known { version.modified() } else { version.changed() }) > began
    };
    remove_unless(parent, name, &mut is_changed)
}

/// Removes an entry, in a folder all but the files and links that `keeps` returns true for. What
/// cannot be removed does not keep it from removing the rest.
fn remove_unless(
    parent: BorrowedFd<'_>,
    name: &CStr,
    keeps: &mut dyn FnMut(&Stat) -> bool,
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
                removed => return Ok(removed?),
            }
        } else if removal.filled < removal.failed.len() {
            return Err(ChangeRefusal::of_entries(removal.failed));
        }
        // An upload that had begun before has put a file into it.
        thread::sleep(PAUSE * attempt);
    }
    Err(Errno::NOTEMPTY.into())
}

/// The state of removing all in a folder.
struct Removal<'r> {
    top: BorrowedFd<'r>,
    /// Returns whether a file or link is kept.
    keeps: &'r mut dyn FnMut(&Stat) -> bool,
    /// The entries that could not be removed, and not the folders above them.
    failed: Vec<FailedEntry>,
    /// The number of those that are folders into which something was put meanwhile.
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
        // An abandoned copy may be one level deeper than its original.
        for name in names(&folder, depth.saturating_sub(1))? {
            let removed = match stat_entry(&folder, &name) {
                Ok(Some(stat)) if kind(&stat) == FileType::Directory => {
                    folders.push(name);
                    continue;
                }
                Ok(Some(stat)) if (self.keeps)(&stat) => Err(ChangeRefusal::new(409, CHANGED)),
                Ok(Some(_)) => ignore_missing(unlinkat(&folder, &name, AtFlags::empty())),
                Ok(None) => Ok(()),
                Err(errno) => Err(errno.into()),
            };
            if let Err(refusal) = removed {
                push_inside(inside, &name);
                is_empty = self.fail(inside, false, refusal);
                inside.truncate(len);
            }
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

    /// Notes an entry that remains; returns false: its folder is not empty.
    fn fail(&mut self, inside: &[u8], is_folder: bool, refusal: ChangeRefusal) -> bool {
        if self.failed.len() < MAX_FAILED {
            self.failed.push(FailedEntry::new(inside, is_folder, refusal));
        }
        false
    }
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

/// The pause after the second attempt; each further one is longer by it.
const PAUSE: Duration = Duration::from_millis(2);

/// The maximum number of failed entries that a response lists.
const MAX_FAILED: usize = 100;

const CHANGED: &str = "it was changed while it was copied, and is still there";

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
        let mut uploads = |_: &Stat| {
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
    fn what_came_after_a_copy_was_begun_is_not_removed_with_the_original() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("original/inner")).unwrap();
        fs::write(at("original/file"), "x").unwrap();
        fs::hard_link(at("original/file"), at("original/link")).unwrap();
        fs::write(at("original/inner/file"), "y").unwrap();
        let parent = fs::File::open(folder.path()).unwrap();
        let began = SystemTime::now();
        // Files get the time of the last tick of the clock.
        thread::sleep(Duration::from_millis(25));
        fs::write(at("original/inner/new"), "z").unwrap();
        let outcome = remove_copied(parent.as_fd(), c"original", began);
        let failed = outcome.unwrap_err().failed;
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!((&*failed[0].path, failed[0].status), (&b"inner/new"[..], 409));
        assert_eq!(fs::read(at("original/inner/new")).unwrap(), b"z");
        assert!(!at("original/file").exists() && !at("original/link").exists());
        assert!(!at("original/inner/file").exists());
        let now = SystemTime::now() + Duration::from_secs(1);
        remove_copied(parent.as_fd(), c"original", now).unwrap();
        assert!(!at("original").exists());
    }
}
