//! Files with several names: which of them is copied, and where the others link to.
//!
//! Only files with more than one name are in the table, and those only until all of their names
//! have been found; where symbolic links are followed, each of which is one more name, all files
//! are, to the end. The first one that is found is copied; what is found meanwhile waits in the
//! table, not in a thread.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{AtFlags, Mode, OFlags, Stat, linkat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::folder::{Entry, Folder, State, Trail};
use crate::options::Follow;

/// The table.
#[derive(Debug)]
pub(crate) struct Links {
    /// Whether only the file system's own names lead to files.
    are_counted: bool,
    table: Mutex<HashMap<(u64, u64), Known>>,
}

#[derive(Debug)]
struct Known {
    /// Names that have not been found yet.
    left: u64,
    state: Copied,
}

#[derive(Debug)]
enum Copied {
    /// Somebody is at it; these wait.
    NotYet(Vec<(Arc<Folder>, Entry)>),
    /// Here it is.
    There(Spot),
}

/// Where a copy is.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    /// While anything is to be done in its folder.
    folder: Weak<Folder>,
    trail: Arc<Trail>,
    /// Where the trail begins.
    top: Arc<Folder>,
    name: CString,
}

/// What is to be done with a name that was found.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Copy it, and tell by [`Links::copied`] or [`Links::failed`].
    Copy,
    /// Link to this.
    Link(Spot),
    /// Nothing: whoever copies it will see to it.
    Wait,
}

impl Links {
    /// A table for a copy that follows symbolic links, or does not.
    pub(crate) fn new(follow: Follow) -> Self {
        Self { are_counted: follow == Follow::Never, table: Mutex::default() }
    }

    /// Whether a file has a place in the table.
    pub(crate) fn may_have(&self, stat: &Stat) -> bool {
        !self.are_counted || stat.st_nlink > 1
    }

    /// A name of a file with several was found.
    pub(crate) fn found(&self, stat: &Stat, folder: &Arc<Folder>, entry: &Entry) -> Turn {
        let key = (stat.st_dev, stat.st_ino);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = table.get_mut(&key) else {
            let left = if self.are_counted { names(stat).saturating_sub(1) } else { u64::MAX };
            table.insert(key, Known { left, state: Copied::NotYet(Vec::new()) });
            return Turn::Copy;
        };
        known.left = known.left.saturating_sub(1);
        match &mut known.state {
            Copied::NotYet(waiting) => {
                folder.hold(true);
                waiting.push((Arc::clone(folder), entry.clone()));
                Turn::Wait
            }
            Copied::There(spot) => {
                let spot = spot.clone();
                if known.left == 0 {
                    table.remove(&key);
                }
                Turn::Link(spot)
            }
        }
    }

    /// It was copied: returns who waited for that.
    pub(crate) fn copied(&self, stat: &Stat, spot: Spot) -> Vec<(Arc<Folder>, Entry)> {
        let key = (stat.st_dev, stat.st_ino);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = table.get_mut(&key) else { return Vec::new() };
        let before = std::mem::replace(&mut known.state, Copied::There(spot));
        if known.left == 0 {
            table.remove(&key);
        }
        match before {
            Copied::NotYet(waiting) => waiting,
            Copied::There(_) => Vec::new(),
        }
    }

    /// It could not be copied: returns who waited, of whom the first may try.
    pub(crate) fn failed(&self, stat: &Stat) -> Vec<(Arc<Folder>, Entry)> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        match table.remove(&(stat.st_dev, stat.st_ino)).map(|known| known.state) {
            Some(Copied::NotYet(waiting)) => waiting,
            _ => Vec::new(),
        }
    }
}

/// How many names a file has.
#[allow(clippy::useless_conversion)] // the field's type differs by target
fn names(stat: &Stat) -> u64 {
    u64::from(stat.st_nlink)
}

impl Spot {
    /// The place of `name` in `folder`.
    pub(crate) fn new(folder: &Arc<Folder>, name: &CStr) -> Self {
        let mut top = folder;
        while let Some(parent) = &top.parent {
            top = parent;
        }
        let top = top.top.as_ref().unwrap_or(top);
        Self {
            folder: Arc::downgrade(folder),
            trail: Arc::clone(&folder.trail),
            top: Arc::clone(top),
            name: name.to_owned(),
        }
    }

    /// Gives the copy another name.
    pub(crate) fn link(&self, folder: &Folder, name: &CStr) -> Result<(), Errno> {
        if let Some(mine) = self.folder.upgrade() {
            return link(&mine.target, &self.name, folder, name);
        }
        // A folder above may get its name at this very moment.
        let mut found = self.open();
        for _ in 0..100 {
            match found {
                Err(Errno::NOENT) => found = self.open(),
                _ => break,
            }
        }
        link(found?, &self.name, folder, name)
    }

    /// Opens the folder, one name after the other.
    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = openat(&self.top.target, ".", flags, Mode::empty())?;
        for name in self.trail.names() {
            at = openat(&at, name, flags, Mode::empty())?;
        }
        Ok(at)
    }
}

/// Links; a file that has the name is replaced in one moment.
fn link(from: impl AsFd, old: &CStr, folder: &Folder, new: &CStr) -> Result<(), Errno> {
    let (from, to) = (from.as_fd(), &folder.target);
    match linkat(from, old, to, new, AtFlags::empty()) {
        Err(Errno::EXIST) if folder.state != State::Fresh => {}
        linked => return linked,
    }
    let here = statat(to, new, AtFlags::SYMLINK_NOFOLLOW)?;
    let there = statat(from, old, AtFlags::SYMLINK_NOFOLLOW)?;
    if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino) {
        // An earlier run has linked them.
        return Ok(());
    }
    let hidden = crate::names::hidden(new, Some(std::process::id()));
    linkat(from, old, to, &hidden, AtFlags::empty())?;
    renameat(to, &hidden, to, new).inspect_err(|_| {
        // It is ours, and nobody will miss it.
        let _ = unlinkat(to, &hidden, AtFlags::empty());
    })
}
