//! A folder that is being copied: source, target, and the number of its unfinished entries.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, openat, statat};
use underpass_engine::FileId;
use underpass_engine::atomic_file::{fold_case, ignores_case};

use crate::attributes::inherited::InheritedAttrs;
use crate::tree::path_chain::PathChain;

/// A folder and its copy, while something in it is still to be copied.
///
/// All calls take one of the two descriptors and a single name, so that no path is too long, and no
/// link that another process plants is followed.
#[derive(Debug)]
pub(crate) struct DirPair {
    pub(crate) source: OwnedFd,
    pub(crate) target: OwnedFd,
    pub(crate) chain: Arc<PathChain>,
    /// `None` for the folder that the sources are put in.
    pub(crate) parent: Option<Arc<DirPair>>,
    /// The folder that the sources are put in, if this one was deferred and has no parent.
    pub(crate) top: Option<Arc<DirPair>>,
    /// The number of open folders above it.
    pub(crate) depth: usize,
    /// Mode, owner and times of the source; `None` if the copy is not to get them.
    pub(crate) stat: Option<Stat>,
    pub(crate) origin: DirOrigin,
    /// Whether everything in it was written in this mount epoch, so that size and time show which
    /// files are whole.
    pub(crate) is_trusted: bool,
    /// Whether no other user may enter a folder above its target, or the target itself.
    pub(crate) is_closed: bool,
    /// The type of the target's file system.
    pub(crate) system: &'static str,
    /// The device of the source, for copies that stay on one file system.
    pub(crate) device: Option<u64>,
    /// The attributes that new entries inherit from the target.
    pub(crate) inherited: InheritedAttrs,
    /// The files this copy has made in a target that existed. Where case is ignored, another
    /// source may have the same target. `None` if no name can be made twice.
    pub(crate) made: Option<Mutex<MadeFiles>>,
    /// Whether its final name was refused, which is reported once.
    pub(crate) is_refused: AtomicBool,
    /// Entries and parts of the listing that are still to be done, without its folders.
    pub(crate) own: AtomicUsize,
    /// All entries that are still to be done.
    pub(crate) all: AtomicUsize,
}

/// The files that a copy has made in one folder, or in all of them.
#[derive(Debug, Default)]
pub(crate) struct MadeFiles {
    /// Each file with its name, or without one if it must not be replaced under any
    /// name.
    files: HashMap<FileId, Option<CString>>,
    /// The names in a folder that ignores case, by their folded form: the kernel's cache of a name
    /// may be older than the file that has it.
    names: HashMap<Vec<u8>, CString>,
    /// Whether the folder ignores case; `None` until a file was made whose name has letters.
    ignores_case: Option<bool>,
}

impl MadeFiles {
    /// Adds a file, whatever its name.
    pub(crate) fn insert(&mut self, stat: &Stat) {
        self.files.insert(FileId::of(stat), None);
    }

    /// Adds a file that was made under this name in a folder, unless case matters there.
    pub(crate) fn insert_name(&mut self, folder: &OwnedFd, name: &CStr, stat: &Stat) {
        if self.ignores_case.is_none() {
            self.ignores_case = ignores_case(folder, name.to_bytes());
        }
        if !self.needs_names() {
            (self.files, self.names) = Default::default();
            return;
        }
        self.names.entry(fold_case(name.to_bytes())).or_insert_with(|| name.to_owned());
        // A file that was written in place may be there under other names as well.
        if stat.st_nlink == 1 {
            self.files.insert(FileId::of(stat), Some(name.to_owned()));
        }
    }

    /// Returns whether two names in a folder may lead to one file.
    pub(crate) fn needs_names(&self) -> bool {
        self.ignores_case != Some(false)
    }

    /// Returns whether the entry under this name in a folder was made under another name, which
    /// still leads to it: once another process has replaced a file, its inode number may be
    /// reused.
    pub(crate) fn contains(&self, folder: &OwnedFd, name: &CStr, there: &Stat) -> bool {
        let is_twin = self.ignores_case == Some(true)
            && self.names.get(&fold_case(name.to_bytes())).is_some_and(|made| **made != *name);
        is_twin
            || match self.files.get(&FileId::of(there)) {
                None => false,
                Some(None) => true,
                Some(Some(made)) => **made != *name && is_one_file(folder, made, name),
            }
    }

    /// Returns whether a file was made, in whatever folder.
    pub(crate) fn has(&self, stat: &Stat) -> bool {
        self.files.contains_key(&FileId::of(stat))
    }
}

/// Returns whether two names lead to one file. Both are open during the comparison, so that no
/// inode number is reused.
fn is_one_file(folder: &OwnedFd, one: &CStr, other: &CStr) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |name| openat(folder, name, flags, Mode::empty());
    let (Ok(one), Ok(other)) = (open(one), open(other)) else { return false };
    let id = |file: &OwnedFd| fstat(file).map(|stat| FileId::of(&stat)).ok();
    id(&one).is_some() && id(&one) == id(&other)
}

/// Where the target of a folder comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirOrigin {
    /// Made by this copy: it holds nothing else.
    Fresh,
    /// Made by this copy under its final name: others may have put something in it.
    Named,
    /// Made by an earlier run that was killed, under a hidden name.
    Adopted,
    /// It existed before this copy.
    Existing,
}

impl DirOrigin {
    /// Returns the empty set of the entries made in it.
    pub(crate) fn nothing_made(self) -> Option<Mutex<MadeFiles>> {
        (self != Self::Fresh).then(Mutex::default)
    }

    /// Returns whether it gets mode and times of the source.
    pub(crate) fn is_new(self) -> bool {
        self != Self::Existing
    }
}

impl DirPair {
    /// Returns whether this is the folder that the sources are put in.
    pub(crate) fn is_top(&self) -> bool {
        self.chain.parent.is_none()
    }

    /// Returns whether an entry of this name may be copied to the folder.
    pub(crate) fn has_source(&self, name: &CStr) -> bool {
        // Sources themselves are named by paths.
        !self.is_top() && statat(&self.source, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Returns the path of a source in it, for messages.
    pub(crate) fn source_path(&self, name: &CStr) -> PathBuf {
        let path = self.chain.path(|chain| Some(chain.source.clone()));
        join(path, name)
    }

    /// Returns the path of a copy in it, for messages.
    pub(crate) fn target_path(&self, name: &CStr) -> PathBuf {
        join(self.chain.path(|chain| Some(chain.target.clone())), name)
    }

    /// Records one more entry to be done.
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

/// Returns the target of the folder, for the ...at(2) calls.
impl AsFd for DirPair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.target.as_fd()
    }
}
