//! Files with several names: the first name is copied, and the others are linked to that copy.
//!
//! The table has only files whose link count is above one, and only until all of their names were
//! found. If a source lies in another one, or is named twice, they stay to the end. Where symbolic
//! links are followed, each of which is one more name, the table has all files. The first name that
//! is found is copied; names that are found before the copy is complete wait in the table. A thread
//! waits for the copy only if too many names wait, as each keeps its folder open.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};

use rustix::fs::{AtFlags, Mode, OFlags, Stat, linkat, openat, statat};
use rustix::io::Errno;
use underpass_engine::FileId;
use underpass_engine::wait::{lock, unpoison};

use crate::attributes::named::NamedAt;
use crate::files::replace::{Backups, place};
use crate::options::Follow;
use crate::tree::dir_pair::{DirOrigin, DirPair};
use crate::tree::entry::SourceEntry;
use crate::tree::path_chain::{PathChain, open_named};

/// Files with several names that were found so far.
#[derive(Debug)]
pub(crate) struct LinkTable {
    /// Whether the table has only files with several names, because no symbolic links are followed.
    needs_names: bool,
    /// Whether a file is found as often as its link count: the sources do not overlap either.
    are_counted: bool,
    table: Mutex<HashMap<LinkKey, LinkedFile>>,
    /// The number of names that wait.
    waiting: AtomicUsize,
    /// Notified when the first copy of a file is made, or has failed.
    is_decided: Condvar,
    /// Whether a thread has panicked, so that a first copy may never be made.
    is_lost: AtomicBool,
}

/// A file with its size and its mtime. If it is removed, a new file may get its inode number
/// before the copy is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LinkKey(FileId, i64, i64, u64);

impl LinkKey {
    #[allow(clippy::useless_conversion)] // the fields' types differ by target
    fn of(stat: &Stat) -> Self {
        let (sec, nsec) = (stat.st_mtime.into(), stat.st_mtime_nsec.into());
        Self(FileId::of(stat), stat.st_size.into(), sec, nsec)
    }
}

#[derive(Debug)]
struct LinkedFile {
    /// The number of names that were not found yet.
    left: u64,
    state: FirstCopy,
}

#[derive(Debug)]
enum FirstCopy {
    /// A thread is copying the file; these names wait.
    Pending(Vec<WaitingName>),
    /// It was copied to here.
    Done(CopyLocation),
}

/// A name that waits for the first copy of its file.
#[derive(Debug)]
pub(crate) struct WaitingName {
    pub(crate) folder: Arc<DirPair>,
    pub(crate) entry: SourceEntry,
    /// Whether the target had no entry of its name when it was found.
    pub(crate) is_new: bool,
}

/// Where the first copy of a file is.
#[derive(Clone, Debug)]
pub(crate) struct CopyLocation {
    /// Its folder, while entries in it are still to be copied.
    folder: Weak<DirPair>,
    chain: Arc<PathChain>,
    /// The folder that the sources are put in.
    top: Arc<DirPair>,
    name: CString,
}

/// The decision of a thread about a name that it has found.
#[derive(Debug)]
pub(crate) enum LinkDecision {
    /// Copies the file, and calls [`LinkTable::copied`] or [`LinkTable::failed`].
    Copy,
    /// Links to this copy.
    Link(CopyLocation),
    /// Nothing: the thread that copies the file makes the link.
    Wait,
}

impl LinkTable {
    /// Makes an empty table for sources that may overlap.
    pub(crate) fn new(follow: Follow, overlaps: bool) -> Self {
        let (table, waiting, is_decided, is_lost) = Default::default();
        let needs_names = follow == Follow::Never;
        let are_counted = needs_names && !overlaps;
        Self { needs_names, are_counted, table, waiting, is_decided, is_lost }
    }

    /// Records that a thread has panicked, and wakes those that wait for its copies.
    pub(crate) fn lose(&self) {
        let _table = lock(&self.table);
        self.is_lost.store(true, Ordering::Relaxed);
        self.is_decided.notify_all();
    }

    /// Returns whether a file belongs in the table.
    pub(crate) fn may_have(&self, stat: &Stat) -> bool {
        !self.needs_names || stat.st_nlink > 1
    }

    /// Records a name of a file with several, and returns what to do with it.
    pub(crate) fn found(
        &self,
        stat: &Stat,
        folder: &Arc<DirPair>,
        entry: &SourceEntry,
        is_new: bool,
    ) -> LinkDecision {
        let key = LinkKey::of(stat);
        let is_full = |table: &mut HashMap<_, LinkedFile>| {
            let known = table.get(&key);
            known.is_some_and(|it| matches!(it.state, FirstCopy::Pending(_)))
                && self.waiting.load(Ordering::Relaxed) >= MAX_WAITING
                && !self.is_lost.load(Ordering::Relaxed)
        };
        let mut table = unpoison(self.is_decided.wait_while(lock(&self.table), is_full));
        let Some(known) = table.get_mut(&key) else {
            let left = if self.are_counted { names(stat).saturating_sub(1) } else { u64::MAX };
            table.insert(key, LinkedFile { left, state: FirstCopy::Pending(Vec::new()) });
            return LinkDecision::Copy;
        };
        known.left = known.left.saturating_sub(1);
        match &mut known.state {
            FirstCopy::Pending(waiting) => {
                folder.hold(true);
                let (folder, entry) = (Arc::clone(folder), entry.clone());
                waiting.push(WaitingName { folder, entry, is_new });
                self.waiting.fetch_add(1, Ordering::Relaxed);
                LinkDecision::Wait
            }
            FirstCopy::Done(location) => {
                let location = location.clone();
                if known.left == 0 {
                    table.remove(&key);
                }
                LinkDecision::Link(location)
            }
        }
    }

    /// Records the first copy of a file, and returns the names that waited for it.
    pub(crate) fn copied(&self, stat: &Stat, location: CopyLocation) -> Vec<WaitingName> {
        let key = LinkKey::of(stat);
        let mut table = lock(&self.table);
        let Some(known) = table.get_mut(&key) else { return Vec::new() };
        let before = std::mem::replace(&mut known.state, FirstCopy::Done(location));
        if known.left == 0 {
            table.remove(&key);
        }
        self.release(before)
    }

    /// Records that a file could not be copied, and returns the names that waited for it.
    pub(crate) fn failed(&self, stat: &Stat) -> Vec<WaitingName> {
        let mut table = lock(&self.table);
        let known = table.remove(&LinkKey::of(stat));
        known.map_or_else(Vec::new, |known| self.release(known.state))
    }

    /// Returns the names that waited in this state of a file, and wakes waiting threads.
    fn release(&self, state: FirstCopy) -> Vec<WaitingName> {
        let waiting = match state {
            FirstCopy::Pending(waiting) => waiting,
            FirstCopy::Done(_) => Vec::new(),
        };
        self.waiting.fetch_sub(waiting.len(), Ordering::Relaxed);
        self.is_decided.notify_all();
        waiting
    }
}

/// The number of names that wait before threads must. Each keeps two descriptors open.
pub(crate) const MAX_WAITING: usize = 16;

/// Returns the link count of a file.
#[allow(clippy::useless_conversion)] // the field's type differs by target
fn names(stat: &Stat) -> u64 {
    u64::from(stat.st_nlink)
}

impl CopyLocation {
    /// Returns the location of `name` in `folder`.
    pub(crate) fn new(folder: &Arc<DirPair>, name: &CStr) -> Self {
        let mut top = folder;
        while let Some(parent) = &top.parent {
            top = parent;
        }
        let top = top.top.as_ref().unwrap_or(top);
        Self {
            folder: Arc::downgrade(folder),
            chain: Arc::clone(&folder.chain),
            top: Arc::clone(top),
            name: name.to_owned(),
        }
    }

    /// Gives the copy one more name, which with `is_new` no other file may have, and returns the
    /// backup name of the entry that had it; `None` if the copy has the name already.
    pub(crate) fn link(
        &self,
        folder: &DirPair,
        name: &CStr,
        is_new: bool,
        backups: Option<&Backups<'_>>,
    ) -> Result<Option<Option<CString>>, Errno> {
        if let Some(mine) = self.folder.upgrade() {
            let existing = NamedAt { folder: mine.target.as_fd(), name: &self.name };
            return link(existing, folder, name, is_new, backups);
        }
        let found = open_named(|| self.open())?;
        link(NamedAt { folder: found.as_fd(), name: &self.name }, folder, name, is_new, backups)
    }

    /// Opens the folder, one path component after the other.
    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = openat(&self.top.target, ".", flags, Mode::empty())?;
        for name in self.chain.names() {
            at = openat(&at, name, flags, Mode::empty())?;
        }
        Ok(at)
    }
}

/// Makes a hard link. Another file that has the name is replaced atomically, unless the name is
/// expected to be free.
fn link(
    existing: NamedAt<'_>,
    folder: &DirPair,
    new: &CStr,
    is_new: bool,
    backups: Option<&Backups<'_>>,
) -> Result<Option<Option<CString>>, Errno> {
    let to = &folder.target;
    let make = |name: &CStr| linkat(existing.folder, existing.name, to, name, AtFlags::empty());
    match place(to.as_fd(), new, true, backups, make) {
        Err(Errno::EXIST) if folder.origin != DirOrigin::Fresh => {}
        linked => return linked.map(|((), kept)| Some(kept)),
    }
    let there = statat(existing.folder, existing.name, AtFlags::SYMLINK_NOFOLLOW)?;
    let here = statat(to, new, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileId::of(&here) == FileId::of(&there) {
        // An earlier run has linked them.
        return Ok(None);
    }
    if is_new {
        return Err(Errno::EXIST);
    }
    place(to.as_fd(), new, false, backups, make).map(|((), kept)| Some(kept))
}
