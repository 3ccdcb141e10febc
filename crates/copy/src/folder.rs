//! A folder that is being copied: its two ends, and when it is done.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::Stat;

/// A folder while something in it is still to be copied.
///
/// All work goes through the two descriptors and single names, so that no path is too long and no
/// link that somebody puts in the way leads elsewhere.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) source: OwnedFd,
    pub(crate) target: OwnedFd,
    pub(crate) trail: Arc<Trail>,
    /// `None` for the one in which sources that were named are put.
    pub(crate) parent: Option<Arc<Folder>>,
    /// Where the trail begins, if it has no parent and yet is not that.
    pub(crate) top: Option<Arc<Folder>>,
    /// How many folders above it are open because of it.
    pub(crate) depth: usize,
    /// The facts of the source; `None` where they are none of our business.
    pub(crate) stat: Option<Stat>,
    pub(crate) state: State,
    /// Whether everything in it was written in this session, so that size and time tell enough.
    pub(crate) is_trusted: bool,
    /// The file system of the target.
    pub(crate) system: &'static str,
    /// The device of the source that was named, for those who stay on it.
    pub(crate) device: Option<u64>,
    /// What gives new entries more than their originals have.
    pub(crate) heritage: Heritage,
    /// Its own entries, and parts of the listing, that are still to be done.
    pub(crate) own: AtomicUsize,
    /// The same, and its folders.
    pub(crate) all: AtomicUsize,
}

/// How the target came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Made by us and empty: nothing in it needs to be looked for.
    Fresh,
    /// Made by an earlier run that was killed.
    Adopted,
    /// It was there.
    Existing,
}

impl State {
    /// Whether mode and times are ours to give.
    pub(crate) fn is_new(self) -> bool {
        self != Self::Existing
    }
}

/// What new entries get from the folder that they are made in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heritage {
    /// An ACL.
    pub(crate) acl: bool,
    /// The group; and folders the bit that hands it on.
    pub(crate) group: bool,
}

impl Folder {
    /// Where something in it comes from, for messages.
    pub(crate) fn source_path(&self, name: &CStr) -> PathBuf {
        let path = self.trail.path(|trail| Some(trail.source.clone()));
        join(path, name)
    }

    /// Where something in it goes to, for messages.
    pub(crate) fn target_path(&self, name: &CStr) -> PathBuf {
        join(self.trail.path(|trail| Some(trail.target.clone())), name)
    }

    /// The name of an entry with those of the folders above, below what was named.
    pub(crate) fn path_below(&self, name: &CStr) -> Vec<u8> {
        let mut names = vec![name.to_bytes()];
        let mut trail = &self.trail;
        while let Some(parent) = &trail.parent {
            names.push(trail.source.to_bytes());
            trail = parent;
        }
        // The last is the name of what was named itself.
        if names.len() > 1 {
            names.pop();
        }
        names.reverse();
        names.join(&b'/')
    }

    /// One more thing in it has to be done.
    pub(crate) fn hold(&self, is_own: bool) {
        self.own.fetch_add(usize::from(is_own), Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
    }
}

/// One after the other: a deep tree would need a deep stack otherwise.
impl Drop for Folder {
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut folder) = above.and_then(Arc::into_inner) {
            above = folder.parent.take();
        }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut trail) = above.and_then(Arc::into_inner) {
            above = trail.parent.take();
        }
    }
}

fn join(folder: PathBuf, name: &CStr) -> PathBuf {
    let name = Path::new(OsStr::from_bytes(name.to_bytes()));
    if folder == Path::new(".") || name.is_absolute() { name.to_owned() } else { folder.join(name) }
}

/// The names that lead to a folder. Outlives the descriptors, for names are cheap.
#[derive(Debug)]
pub(crate) struct Trail {
    pub(crate) parent: Option<Arc<Trail>>,
    /// The name of the source; at the top a path.
    pub(crate) source: CString,
    /// The name of the target; at the top a path.
    pub(crate) target: CString,
    /// The name that the target has until its own entries are whole.
    pub(crate) hidden: Mutex<Option<CString>>,
}

impl Trail {
    pub(crate) fn path(&self, name: impl Fn(&Self) -> Option<CString>) -> PathBuf {
        let mut names = Vec::new();
        let mut next = Some(self);
        while let Some(trail) = next {
            names.extend(name(trail));
            next = trail.parent.as_deref();
        }
        let mut path = PathBuf::new();
        for name in names.iter().rev().filter(|name| !name.is_empty() && name.as_c_str() != c".") {
            path.push(OsStr::from_bytes(name.to_bytes()));
        }
        path
    }

    /// The names by which the source can be reached, from the top; the first one is a path.
    pub(crate) fn sources(&self) -> Vec<CString> {
        let mut names = Vec::new();
        let mut next = Some(self);
        while let Some(trail) = next.filter(|trail| trail.parent.is_some()) {
            names.push(trail.source.clone());
            next = trail.parent.as_deref();
        }
        names.reverse();
        names
    }

    /// The names by which the target can be reached now, from the top.
    pub(crate) fn names(&self) -> Vec<CString> {
        let mut names = Vec::new();
        let mut next = Some(self);
        while let Some(trail) = next.filter(|trail| trail.parent.is_some()) {
            let hidden = trail.hidden.lock().unwrap_or_else(PoisonError::into_inner);
            names.push(hidden.as_ref().unwrap_or(&trail.target).clone());
            next = trail.parent.as_deref();
        }
        names.reverse();
        names
    }
}

/// Something in a folder that is to be copied.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its name; of what was named on the command line a path.
    pub(crate) name: CString,
    /// Its new name, if that is another one.
    pub(crate) new_name: Option<CString>,
    /// What it is, as far as the folder tells.
    pub(crate) kind: rustix::fs::FileType,
    /// Whether a link is to be followed.
    pub(crate) follows: bool,
    /// Its number, by which some disks are in order.
    pub(crate) number: u64,
}

impl Entry {
    /// Its name in the target.
    pub(crate) fn target(&self) -> &CStr {
        self.new_name.as_deref().unwrap_or(&self.name)
    }
}

/// The target of a folder, to be used with a name.
impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.target.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_trail_needs_no_deep_stack() {
        let mut trail: Option<Arc<Trail>> = None;
        for _ in 0..200_000 {
            let (source, target, hidden) = (c"d".to_owned(), c"d".to_owned(), Mutex::default());
            trail = Some(Arc::new(Trail { parent: trail, source, target, hidden }));
        }
        assert!(trail.is_some_and(|trail| trail.names().len() == 199_999));
    }
}
