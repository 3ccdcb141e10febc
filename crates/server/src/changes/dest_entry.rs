//! Gives a new file or folder a name that may be taken: the existing entry stays whole until the
//! new one is in its place.

use std::ffi::{CStr, CString};
use std::hash::BuildHasher;
use std::hash::RandomState;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, RenameFlags, Stat, renameat, renameat_with};
use rustix::io::Errno;
use underpass_engine::FileId;
use underpass_engine::atomic_file::rename_new;

use crate::changes::refusal::{ChangeRefusal, Result};
use crate::changes::removal;
use crate::changes::tree;

/// A name in a folder, and the entry that has it now.
#[derive(Debug)]
pub(crate) struct DestEntry {
    pub(crate) folder: OwnedFd,
    pub(crate) name: CString,
    pub(crate) existing: Option<Stat>,
}

impl DestEntry {
    /// Gives the name to the entry that has `name` in the folder `from`; returns the hidden name
    /// under which a folder that had it is now, for [`remove`](Self::remove).
    ///
    /// A file replaces a file in one step, and where the file system can, a folder and what
    /// replaces it change places in one: whenever the server is killed, the whole old or the whole
    /// new entry has the name. Otherwise the old one is moved aside, and back if the new one cannot
    /// follow.
    ///
    /// # Errors
    ///
    /// The errors of renameat2(2): `EEXIST` if another request or program took the name first,
    /// `EXDEV`, `EINVAL` for a folder that is moved into itself.
    pub(crate) fn give(
        &self,
        is_folder: bool,
        from: &OwnedFd,
        name: &CStr,
    ) -> Result<Option<CString>, Errno> {
        let (folder, own) = (&self.folder, &*self.name);
        if self.existing.is_none() {
            return rename_new(from, name, folder, own).map(|()| None);
        }
        if !is_folder && !self.is_folder() {
            return renameat(from, name, folder, own).map(|()| None);
        }
        let aside = hidden_name(own);
        match renameat_with(from, name, folder, own, RenameFlags::EXCHANGE) {
            Ok(()) => rename_new(from, name, folder, &*aside).inspect_err(|_| {
                let _ = renameat_with(from, name, folder, own, RenameFlags::EXCHANGE);
            })?,
            Err(Errno::XDEV) => return Err(Errno::XDEV),
            // The file system cannot, or not for a folder of another user.
            Err(_) => {
                rename_new(folder, own, folder, &*aside)?;
                rename_new(from, name, folder, own).inspect_err(|_| {
                    // If the name was taken meanwhile, the old entry is kept under the hidden one.
                    let _ = rename_new(folder, &*aside, folder, own);
                })?;
            }
        }
        Ok(Some(aside))
    }

    /// Returns whether a folder has the name now.
    pub(crate) fn is_folder(&self) -> bool {
        self.existing.is_some_and(|existing| tree::kind(&existing) == FileType::Directory)
    }

    /// Removes the replaced folder of this hidden name, if there is one; returns whether the name
    /// was free before.
    pub(crate) fn remove(&self, aside: Option<CString>) -> Result<bool> {
        let removed = match aside.map(|aside| removal::remove(self.folder.as_fd(), &aside)) {
            // An upload into it has not ended. What is left goes with stale uploads.
            Some(Err(refusal)) if refusal == Errno::NOTEMPTY.into() => Ok(()),
            removed => removed.unwrap_or(Ok(())),
        };
        // The new entry has the name by now. Parts of the old one may be gone.
        removed.map_err(|refusal| {
            let reason = refusal.detail;
            ChangeRefusal::made(format_args!("what it replaced cannot be removed: {reason}"))
        })?;
        Ok(self.existing.is_none())
    }
}

/// Removes a folder and all that is in it, if it is still the one that was checked. `on_gone` is
/// called once its name is free.
///
/// Its name goes first and in one step: no client sees a part of it, and a request that moves it at
/// the same time moves all of it or nothing. If the server is killed meanwhile, the rest has a
/// hidden name. If the system refuses to remove something, the rest gets its name back.
pub(crate) fn remove_checked(
    parent: &OwnedFd,
    name: &CStr,
    checked: &Stat,
    on_gone: impl FnOnce(),
) -> Result<()> {
    let aside = hidden_name(name);
    match rename_new(parent, name, parent, &*aside) {
        Ok(()) => {}
        // A folder of a lower layer of overlayfs cannot be renamed, but removed.
        Err(Errno::XDEV | Errno::OPNOTSUPP) => return removal::remove(parent.as_fd(), name),
        Err(errno) => return Err(errno.into()),
    }
    let now = tree::stat_entry(parent, &aside)?;
    let is_same = now.is_some_and(|now| FileId::of(&now) == FileId::of(checked));
    let removed = if is_same {
        on_gone();
        removal::remove(parent.as_fd(), &aside)
    } else {
        Err(ChangeRefusal::replaced())
    };
    removed.inspect_err(|_| {
        // If another request or program took the name meanwhile, the rest keeps the hidden one.
        let _ = rename_new(parent, &*aside, parent, name);
    })
}

/// Returns a name that is never shown or served, like those of incomplete uploads. If the server is
/// killed, an entry with such a name is removed after a while.
pub(crate) fn hidden_name(name: &CStr) -> CString {
    let name = name.to_bytes();
    let mut hidden = vec![b'.'];
    hidden.extend_from_slice(&name[..name.len().min(NAME_MAX - ".".len() - SUFFIX_LEN)]);
    // Two hashers of the standard library with keys of their own give 128 random bits.
    let number = || RandomState::new().hash_one(name);
    hidden.extend_from_slice(format!(".{:016x}{:016x}.upload", number(), number()).as_bytes());
    // A file name has no NUL, so this one has none either.
    CString::new(hidden).unwrap_or_default()
}

/// The maximum length of a file's name in bytes.
const NAME_MAX: usize = 255;

/// The number of bytes after the name: a dot, 32 digits and `.upload`.
const SUFFIX_LEN: usize = 1 + 32 + 7;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use rustix::fs::{CWD, Mode, OFlags, openat};

    use super::*;

    #[test]
    fn a_replaced_folder_into_which_uploads_write_is_no_failure() {
        let parent = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            openat(CWD, parent.path().join(name), flags, Mode::empty()).unwrap()
        };
        for round in 0..20 {
            let old = format!(".old{round}.upload");
            fs::create_dir(parent.path().join(&old)).unwrap();
            let (folder, is_over) = (open(&old), AtomicBool::new(false));
            let existing = Some(rustix::fs::fstat(&folder).unwrap());
            let dest = DestEntry { folder: open("."), name: c"new".into(), existing };
            thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 0_u64.. {
                        let flags = OFlags::WRONLY | OFlags::CREATE;
                        let made = openat(&folder, number.to_string(), flags, Mode::RUSR);
                        if made.is_err() || is_over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
                let removed = dest.remove(Some(CString::new(old).unwrap()));
                is_over.store(true, Ordering::Relaxed);
                assert_eq!(removed, Ok(false));
            });
        }
    }

    #[test]
    fn hidden_names_fit_and_differ() {
        for len in [1, 10, 214, 215, 255] {
            let name = CString::new(vec![b'n'; len]).unwrap();
            let (one, other) = (hidden_name(&name), hidden_name(&name));
            assert!(one.to_bytes().len() <= NAME_MAX && one != other, "{one:?} {other:?}");
            assert!(one.to_bytes().starts_with(b".n") && one.to_bytes().ends_with(b".upload"));
        }
    }
}
