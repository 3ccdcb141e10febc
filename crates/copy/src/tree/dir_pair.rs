//! A folder that is being copied: source, target, and what is still to be done in it.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::Stat;

use crate::attributes::inherited::InheritedAttrs;
use crate::tree::path_chain::PathChain;

/// A folder and its copy, while something in it is still to be copied.
///
/// All calls take one of the two descriptors and a single name, so that no path is too long, and a
/// link that another process puts in the way leads nowhere.
#[derive(Debug)]
pub(crate) struct DirPair {
    pub(crate) source: OwnedFd,
    pub(crate) target: OwnedFd,
    pub(crate) chain: Arc<PathChain>,
    /// `None` for the folder that the sources are put in.
    pub(crate) parent: Option<Arc<DirPair>>,
    /// The folder that the sources are put in, if this one was deferred and has no parent.
    pub(crate) top: Option<Arc<DirPair>>,
    /// How many open folders are above it.
    pub(crate) depth: usize,
    /// Mode, owner and times of the source; `None` if the copy is not to get them.
    pub(crate) stat: Option<Stat>,
    pub(crate) origin: DirOrigin,
    /// Whether everything in it was written in this session, so that size and time show what is
    /// whole.
    pub(crate) is_trusted: bool,
    /// The type of the target's file system.
    pub(crate) system: &'static str,
    /// The device of the source, for copies that stay on one file system.
    pub(crate) device: Option<u64>,
    /// What new entries inherit from the target.
    pub(crate) inherited: InheritedAttrs,
    /// Entries and parts of the listing that are still to be done, without its folders.
    pub(crate) own: AtomicUsize,
    /// All entries that are still to be done.
    pub(crate) all: AtomicUsize,
}

/// Where the target of a folder comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirOrigin {
    /// Made by this copy: it holds nothing else.
    Fresh,
    /// Made by an earlier run that was killed, under a hidden name.
    Adopted,
    /// It existed.
    Existing,
}

impl DirOrigin {
    /// Whether it gets mode and times of the source.
    pub(crate) fn is_new(self) -> bool {
        self != Self::Existing
    }
}

impl DirPair {
    /// Returns the path of a source in it, for messages.
    pub(crate) fn source_path(&self, name: &CStr) -> PathBuf {
        let path = self.chain.path(|chain| Some(chain.source.clone()));
        join(path, name)
    }

    /// Returns the path of a copy in it, for messages.
    pub(crate) fn target_path(&self, name: &CStr) -> PathBuf {
        join(self.chain.path(|chain| Some(chain.target.clone())), name)
    }

    /// Returns the path of an entry below the source that was named.
    pub(crate) fn path_below(&self, name: &CStr) -> Vec<u8> {
        let mut names = vec![name.to_bytes()];
        let mut chain = &self.chain;
        while let Some(parent) = &chain.parent {
            names.push(chain.source.to_bytes());
            chain = parent;
        }
        // The last is the name of what was named itself.
        if names.len() > 1 {
            names.pop();
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Records that one more entry has to be done.
    pub(crate) fn hold(&self, is_own: bool) {
        self.own.fetch_add(usize::from(is_own), Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
    }
}

/// Drops the folders above one after the other: a deep tree would need a deep stack otherwise.
impl Drop for DirPair {
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut folder) = above.and_then(Arc::into_inner) {
            above = folder.parent.take();
        }
    }
}

fn join(folder: PathBuf, name: &CStr) -> PathBuf {
    let name = Path::new(OsStr::from_bytes(name.to_bytes()));
    if folder == Path::new(".") || name.is_absolute() { name.to_owned() } else { folder.join(name) }
}

/// Gives the target of a folder, to be used with a name.
impl AsFd for DirPair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.target.as_fd()
    }
}
