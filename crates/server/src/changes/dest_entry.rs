//! Gives a new file or folder a name that may be taken: the existing entry stays whole until the
//! new one is in its place.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, RenameFlags, Stat, renameat, renameat_with};
use rustix::io::Errno;
use underpass_engine::FileId;
use underpass_engine::atomic_file::{listed_name, rename_new, stat_entry};

use crate::changes::hidden_name::{hidden_name, move_aside};
use crate::changes::refusal::{ChangeRefusal, Result};
use crate::changes::removal;
use crate::changes::tree;
use underpass_protocol::upload::is_partial_name;

/// A name in a folder, and the entry that has it now.
#[derive(Debug)]
pub(crate) struct DestEntry {
    pub(crate) folder: OwnedFd,
    pub(crate) name: CString,
    pub(crate) existing: Option<Stat>,
}

impl DestEntry {
    /// Gives the name to the entry that has `name` in the folder `from`; returns the hidden name of
    /// a folder that had it before, for [`remove`](Self::remove).
    ///
    /// A file replaces a file in one step, and where the file system can, a folder and the copy
    /// that replaces it are exchanged. An entry with a visible name is not exchanged: if the server
    /// were killed then, that name would have what it should replace. So the old folder is moved
    /// aside first, and back if the new entry cannot follow, or at the next start.
    ///
    /// # Errors
    ///
    /// The errors of renameat2(2) as refusals: `EEXIST` if another request or program took the name
    /// first, `EXDEV` for the entry, `EINVAL` for a folder that is moved into itself, or if the
    /// file system does not support this renaming. If the folder to be replaced cannot be moved,
    /// the refusal says so.
    pub(crate) fn give(
        &self,
        is_folder: bool,
        from: &OwnedFd,
        name: &CStr,
        renaming: Renaming,
    ) -> Result<Option<CString>> {
        let (folder, own) = (&self.folder, &*self.name);
        let rename = || match renaming {
            Renaming::Atomic => renameat_with(from, name, folder, own, RenameFlags::NOREPLACE),
            Renaming::Checked => rename_new(from, name, folder, own),
        };
        if self.existing.is_none() {
            return Ok(rename().map(|()| None)?);
        }
        if !is_folder && !self.is_folder() {
            return Ok(renameat(from, name, folder, own).map(|()| None)?);
        }
        let rest = hidden_name(own);
        let is_exchanged = is_partial_name(name.to_bytes())
            && renameat_with(from, name, folder, own, RenameFlags::EXCHANGE).is_ok();
        if is_exchanged {
            return match rename_new(from, name, folder, &*rest) {
                Ok(()) => Ok(Some(rest)),
                Err(errno) => {
                    renameat_with(from, name, folder, own, RenameFlags::EXCHANGE)
                        // The old folder was replaced, and has the hidden name of the new one.
                        .map_or_else(|_| Ok(Some(name.to_owned())), |()| Err(errno.into()))
                }
            };
        }
        match rename() {
            Err(Errno::EXIST) => {}
            // The name is free by now, or the entry cannot be moved here.
            renamed => return Ok(renamed.map(|()| None)?),
        }
        let aside = move_aside(folder, own, own).map_err(|errno| match errno {
            // A folder of a lower layer of overlayfs.
            Errno::XDEV => ChangeRefusal::new(409, UNMOVABLE),
            errno => errno.into(),
        })?;
        rename().inspect_err(|_| {
            // If another entry has taken the name, the old one keeps the hidden name.
            let _ = rename_new(folder, &*aside, folder, own);
        })?;
        // The old folder counts as replaced now, and does not get its name back.
        Ok(Some(rename_new(folder, &*aside, folder, &*rest).map_or(aside, |()| rest)))
    }

    /// Counts an attempt, and returns whether another one makes sense after [`give`](Self::give)
    /// was refused: the name was found free, and has been taken since.
    pub(crate) fn count_look(&self, refusal: &ChangeRefusal, attempts: &mut u32) -> bool {
        *attempts += 1;
        *attempts <= MAX_ATTEMPTS && self.existing.is_none() && refusal.is_by(Errno::EXIST)
    }

    /// Returns whether a folder has the name now.
    pub(crate) fn is_folder(&self) -> bool {
        self.existing.is_some_and(|existing| tree::kind(&existing) == FileType::Directory)
    }

    /// Removes the replaced folder of this hidden name, if there is one; returns whether the name
    /// was free before.
    ///
    /// Hidden entries that appeared in it after the check are not removed, nor is what the system
    /// refuses to remove. Their folder keeps a hidden name, and gets its own back once that is free.
    pub(crate) fn remove(
        &self,
        aside: Option<CString>,
        is_hidden: &dyn Fn(&[u8], bool) -> bool,
    ) -> Result<bool> {
        let folder = &self.folder;
        let remove = |aside: CString| {
            removal::remove_visible(folder.as_fd(), &aside, is_hidden).inspect_err(|refusal| {
                // Parts that an upload has put into it since are removed with stale uploads.
                if !refusal.is_by(Errno::NOTEMPTY) {
                    let _ = move_aside(folder, &aside, &self.name);
                }
            })
        };
        let removed = match aside.map(remove) {
            // An upload into it has not ended. Its part is removed with stale uploads.
            Some(Err(refusal)) if refusal.is_by(Errno::NOTEMPTY) => Ok(()),
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

/// How an entry gets a name that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renaming {
    /// In one step, which NFS and some FUSE file systems refuse.
    Atomic,
    /// In two: the caller must lock the names exclusively, so that no other request takes it.
    Checked,
}

impl Renaming {
    /// Returns whether the file system cannot rename in one step.
    pub(crate) fn is_refused(self, refusal: &ChangeRefusal) -> bool {
        self == Self::Atomic && (refusal.is_by(Errno::INVAL) || refusal.is_by(Errno::NOSYS))
    }
}

/// Returns whether `wanted` is another spelling of the name of this entry, such as one that differs
/// in case: the file system finds it by both, and the folder lists it by its own.
pub(crate) fn is_other_spelling(
    folder: &OwnedFd,
    name: &CStr,
    entry: &Stat,
    wanted: &CStr,
) -> bool {
    let found = stat_entry(folder, wanted).ok().flatten();
    let found = found.filter(|found| FileId::of(found) == FileId::of(entry));
    let listed = found.and_then(|found| listed_name(folder, wanted.to_bytes(), &found));
    name != wanted && listed.as_deref() == Some(name.to_bytes())
}

/// Changes the spelling of an entry's name. A single rename would do nothing, as both names find
/// the same entry. If the server is killed in between, the next start restores the old name.
///
/// # Errors
///
/// The errors of renameat2(2).
pub(crate) fn respell(folder: &OwnedFd, name: &CStr, wanted: &CStr) -> Result<()> {
    let aside = move_aside(folder, name, name)?;
    rename_new(folder, &*aside, folder, wanted).inspect_err(|_| {
        // If another entry has taken the name, this one keeps the hidden name.
        let _ = rename_new(folder, &*aside, folder, name);
    })?;
    Ok(())
}

/// Removes a folder with its contents, except hidden entries that appeared since it was checked, if
/// it is still the same folder. `on_begun` is called once its name is free, or before anything is
/// removed from a folder that cannot be renamed.
///
/// It is renamed first, in one step: no client sees a part of it, and a request that moves it at
/// the same time moves all of it or nothing. If the server is killed before the end, the rest has a
/// hidden name. If something cannot be removed, the rest gets its name back; if another entry has
/// taken that name, as soon as it is free.
pub(crate) fn remove_checked(
    parent: &OwnedFd,
    name: &CStr,
    checked: &Stat,
    is_hidden: &dyn Fn(&[u8], bool) -> bool,
    on_begun: impl FnOnce(),
) -> Result<()> {
    let aside = hidden_name(name);
    match rename_new(parent, name, parent, &*aside) {
        Ok(()) => {}
        // A folder of a lower layer of overlayfs cannot be renamed, but can be removed.
        Err(Errno::XDEV | Errno::OPNOTSUPP) => {
            on_begun();
            return removal::remove_visible(parent.as_fd(), name, is_hidden);
        }
        Err(errno) => return Err(errno.into()),
    }
    let removed = match stat_entry(parent, &aside) {
        Ok(Some(now)) if FileId::of(&now) == FileId::of(checked) => {
            on_begun();
            removal::remove_visible(parent.as_fd(), &aside, is_hidden).or_else(|refusal| {
                // They vanish once they are closed, and the folder is removed with stale uploads.
                let has_gone = refusal.is_by(Errno::NOTEMPTY)
                    && removal::has_only_leftovers(parent.as_fd(), &aside);
                if has_gone { Ok(()) } else { Err(refusal) }
            })
        }
        Ok(_) => Err(ChangeRefusal::replaced()),
        Err(errno) => Err(errno.into()),
    };
    removed.map_err(|refusal| match rename_new(parent, &*aside, parent, name) {
        Ok(()) => refusal,
        // Another request or program has taken the name. Under any other name, clients might see
        // the rest without the right to.
        Err(_) => {
            // Parts that an upload has put into it since are removed with stale uploads.
            if !refusal.is_by(Errno::NOTEMPTY) {
                let _ = move_aside(parent, &aside, name);
            }
            refusal.adding("; its name was taken meanwhile, so what remains has a hidden name")
        }
    })
}

const UNMOVABLE: &str =
    "the file system cannot move the folder at the Destination; delete it first";

/// The maximum number of attempts at a name that others take and free.
const MAX_ATTEMPTS: u32 = 1000;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::mem::MaybeUninit;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use crate::changes::refusal::hidden_inside;
    use rustix::fs::{CWD, Mode, OFlags, inotify, openat};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;
    use crate::changes::hidden_name::is_aside;
    use crate::changes::refusal::FailedEntry;

    #[test]
    fn uploads_into_a_replaced_folder_are_no_failure() {
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
                let removed = dest.remove(Some(CString::new(old).unwrap()), &|_, _| false);
                is_over.store(true, Ordering::Relaxed);
                assert_eq!(removed, Ok(false));
            });
        }
    }

    #[test]
    fn a_folder_that_moves_over_another_one_never_changes_places_with_it() {
        let parent = tempfile::tempdir().unwrap();
        for path in ["from/new/file", "to/old/file"] {
            fs::create_dir_all(parent.path().join(path)).unwrap();
        }
        let open = |name: &str| OwnedFd::from(fs::File::open(parent.path().join(name)).unwrap());
        let existing = Some(rustix::fs::fstat(open("to/old")).unwrap());
        let dest = DestEntry { folder: open("to"), name: c"old".into(), existing };
        // An exchange would move a name into the folder of the source.
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        let flags = inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&watch, parent.path().join("from"), flags).unwrap();
        let aside = dest.give(true, &open("from"), c"new", Renaming::Checked).unwrap();
        let mut buffer = [MaybeUninit::uninit(); 512];
        let event = inotify::Reader::new(&watch, &mut buffer).next().map(|event| event.events());
        assert_eq!(event.unwrap_err(), Errno::AGAIN);
        assert_eq!(dest.remove(aside, &|_, _| false), Ok(false));
        assert!(parent.path().join("to/old/file").exists());
        assert!(!parent.path().join("from/new").exists());
    }

    #[test]
    fn the_rest_of_a_replaced_folder_gets_a_name_that_is_never_removed() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        fs::create_dir_all(at("old/kept/file")).unwrap();
        fs::write(at("new"), "new").unwrap();
        fs::set_permissions(at("old/kept"), fs::Permissions::from_mode(0o555)).unwrap();
        let folder = OwnedFd::from(fs::File::open(parent.path()).unwrap());
        let existing = stat_entry(&folder, c"old").unwrap();
        let from = folder.try_clone().unwrap();
        let dest = DestEntry { folder, name: c"old".into(), existing };
        let replace = || {
            let mut own = capabilities(None).unwrap();
            own.effective -= CapabilitySet::DAC_OVERRIDE;
            set_capabilities(None, own).unwrap();
            let aside = dest.give(false, &from, c"new", Renaming::Checked).unwrap();
            dest.remove(aside, &|_, _| false)
        };
        let removed = thread::scope(|scope| scope.spawn(replace).join().unwrap());
        assert!(removed.unwrap_err().is_made);
        assert_eq!(fs::read(at("old")).unwrap(), b"new");
        let names = underpass_testkit::names(parent.path());
        assert!(names.len() == 2 && is_aside(names[0].as_bytes()), "{names:?}");
        assert!(at(&names[0]).join("kept/file").exists());
    }

    #[test]
    fn a_partly_removed_folder_whose_name_was_taken_is_reported() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        fs::create_dir_all(at("folder/kept/file")).unwrap();
        fs::set_permissions(at("folder/kept"), fs::Permissions::from_mode(0o555)).unwrap();
        let folder = OwnedFd::from(fs::File::open(parent.path()).unwrap());
        let stat = stat_entry(&folder, c"folder").unwrap().unwrap();
        let remove = || {
            let mut own = capabilities(None).unwrap();
            own.effective -= CapabilitySet::DAC_OVERRIDE;
            set_capabilities(None, own).unwrap();
            let taken = || fs::create_dir(at("folder")).unwrap();
            remove_checked(&folder, c"folder", &stat, &|_, _| false, taken)
        };
        let removed = thread::scope(|scope| scope.spawn(remove).join().unwrap());
        let failed = removed.unwrap_err().failed;
        assert_eq!(failed.len(), 1);
        assert!(failed[0].detail.contains("its name was taken meanwhile"), "{failed:?}");
    }

    fn is_hidden(inside: &[u8], _: bool) -> bool {
        inside.ends_with(b".git")
    }

    #[test]
    fn hidden_entries_that_appear_before_a_removal_keep_the_name_of_their_folder() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir_all(parent.path().join("folder/inner")).unwrap();
        fs::write(parent.path().join("folder/inner/file"), "x").unwrap();
        let folder = OwnedFd::from(fs::File::open(parent.path()).unwrap());
        let stat = stat_entry(&folder, c"folder").unwrap().unwrap();
        let late = || {
            let hidden = fs::read_dir(parent.path()).unwrap().next().unwrap().unwrap().path();
            fs::create_dir(hidden.join("inner/.git")).unwrap();
        };
        let removed = remove_checked(&folder, c"folder", &stat, &is_hidden, late);
        // Much is gone, so the answer is not that of a removal that was refused as a whole.
        let inner = FailedEntry::new(b"inner", true, hidden_inside());
        assert_eq!(removed.unwrap_err().failed, [inner]);
        assert!(parent.path().join("folder/inner/.git").exists());
        assert!(!parent.path().join("folder/inner/file").exists());
    }

    #[test]
    fn hidden_entries_that_appear_before_a_replacement_are_never_removed() {
        let parent = tempfile::tempdir().unwrap();
        for path in ["new", "old"] {
            fs::create_dir(parent.path().join(path)).unwrap();
        }
        let folder = OwnedFd::from(fs::File::open(parent.path()).unwrap());
        let existing = stat_entry(&folder, c"old").unwrap();
        let from = folder.try_clone().unwrap();
        let dest = DestEntry { folder, name: c"old".into(), existing };
        let aside = dest.give(true, &from, c"new", Renaming::Checked).unwrap();
        let hidden = parent.path().join(aside.as_deref().unwrap().to_str().unwrap());
        fs::create_dir(hidden.join(".git")).unwrap();
        let refusal = dest.remove(aside, &is_hidden).unwrap_err();
        assert!(refusal.is_made && refusal.detail.contains("hidden entries"), "{refusal:?}");
        let names = underpass_testkit::names(parent.path());
        assert!(names.len() == 2 && is_aside(names[0].as_bytes()), "{names:?}");
        assert!(parent.path().join(&names[0]).join(".git").exists());
    }
}
