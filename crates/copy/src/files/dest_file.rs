//! The file that a copy is written to, until it is complete.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, flock, fstat, ftruncate, openat, unlinkat,
};
use rustix::io::Errno;
use underpass_engine::atomic_file::{self, AtomicFile, Existing, open_past_lease};
use underpass_engine::{FileId, close, is_file};

use crate::files::replace::{Backups, rename_over};
use crate::tree::dir_pair::{DirOrigin, DirPair};
use crate::tree::hidden_names::{self, PART_MODE};

/// A file that is being written, and may not have its name yet.
///
/// In a folder that this copy has made, and that has a hidden name, the file has its name from the
/// beginning, which costs a third less. Elsewhere it is unnamed until it is complete.
#[derive(Debug)]
pub(crate) enum DestFile<'a> {
    /// A file in a folder that has a hidden name itself.
    Fresh { file: File, guard: RemoveOnDrop<'a> },
    /// An unnamed file (`O_TMPFILE`), or one with a hidden name.
    Unnamed { file: Box<AtomicFile>, existing: Existing },
    /// An existing file.
    Existing(File),
}

/// Removes an incomplete file when dropped.
#[derive(Debug)]
pub(crate) struct RemoveOnDrop<'a> {
    folder: &'a DirPair,
    name: &'a CStr,
    is_whole: bool,
}

impl<'a> DestFile<'a> {
    /// Creates a new file with this mode, [`keeping_leftovers`](AtomicFile::keeping_leftovers) if
    /// that is requested.
    pub(crate) fn new(
        folder: &'a DirPair,
        name: &'a CStr,
        mode: u32,
        existing: Existing,
        keeps_leftovers: bool,
    ) -> Result<Self, std::io::Error> {
        if folder.origin == DirOrigin::Fresh {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            let file = openat(&folder.target, name, flags, Mode::from_raw_mode(mode))?.into();
            let guard = RemoveOnDrop { folder, name, is_whole: false };
            return Ok(Self::Fresh { file, guard });
        }
        let target = folder.target.as_fd().try_clone_to_owned()?;
        let create = if keeps_leftovers {
            AtomicFile::create_keeping_leftovers
        } else {
            AtomicFile::create_in
        };
        let file = create(target, OsStr::from_bytes(name.to_bytes()), mode)?;
        Ok(Self::Unnamed { file: Box::new(file), existing })
    }

    /// Creates or resumes a file that survives this process under the name `partial` until it is
    /// complete. If another process is writing to it, this user did not make it, or it could not be
    /// renamed, the result is that of [`new`](Self::new).
    pub(crate) fn partial(
        folder: &'a DirPair,
        entry_name: &'a CStr,
        partial: &CStr,
        mode: u32,
        existing: Existing,
    ) -> Result<Self, std::io::Error> {
        if atomic_file::only_adds(&folder.target) {
            return Self::new(folder, entry_name, mode, existing, true);
        }
        let name = OsStr::from_bytes(entry_name.to_bytes());
        let open = |how| {
            let target = folder.target.as_fd().try_clone_to_owned()?;
            let partial = OsStr::from_bytes(partial.to_bytes());
            AtomicFile::partial(target, name, partial, PART_MODE, how)
        };
        let is_locked =
            |file: &AtomicFile| atomic_file::try_lock(file.file(), &folder.target, partial);
        let marked = |made: AtomicFile| {
            match atomic_file::lock_named(made.file(), &folder.target, partial) {
                Ok(true) => {
                    hidden_names::mark(made.file(), partial);
                    Some(made)
                }
                Ok(false) => None,
                // Without a mark, no later run would ever remove it.
                Err(_) => {
                    made.discard();
                    None
                }
            }
        };
        let go_on = |left: AtomicFile| match left.file() {
            file if hidden_names::is_marked(file, &folder.target, partial) => Some(left),
            // It is replaced by a new one, which no other process can have open yet.
            file if hidden_names::is_new_part(file) => {
                unlinkat(&folder.target, partial, AtFlags::empty()).ok()?;
                open(Existing::Keep).ok().and_then(marked)
            }
            _ => None,
        };
        let file = match open(Existing::Keep) {
            Ok(made) => marked(made),
            Err(_) => open(Existing::Replace).ok().filter(is_locked).and_then(go_on),
        };
        match file {
            Some(file) => Ok(Self::Unnamed { file: Box::new(file.keeping_leftovers()), existing }),
            // Any other error would occur with a named file, too.
            None => Self::new(folder, entry_name, mode, existing, true),
        }
    }

    /// Opens and truncates the file of this name.
    pub(crate) fn in_place(folder: &DirPair, name: &CStr, original: &File) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = |more| openat(&folder.target, name, flags | more, Mode::empty());
        // Opening a FIFO for reading and writing does not block.
        let file: File = open_past_lease(open)?.into();
        // Checked again before it is truncated: the name may belong to another file now.
        let (here, from) = (fstat(&file)?, fstat(original)?);
        if FileId::of(&here) == FileId::of(&from) {
            return Err(Errno::EXIST);
        }
        if is_file(&here) {
            ftruncate(&file, 0)?;
        }
        Ok(Self::Existing(file))
    }

    /// Opens the file of this name, which keeps its bytes.
    pub(crate) fn existing(folder: &DirPair, name: &CStr) -> Result<Self, Errno> {
        let flags = OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let at = |how| openat(&folder.target, name, flags | how, Mode::empty());
        let open = |how| open_past_lease(|more| at(how | more));
        let file = match open(OFlags::RDONLY) {
            Err(Errno::ACCESS) => open(OFlags::WRONLY),
            opened => opened,
        };
        Ok(Self::Existing(file?.into()))
    }

    /// Returns the file.
    pub(crate) fn file(&self) -> &File {
        match self {
            Self::Fresh { file, .. } | Self::Existing(file) => file,
            Self::Unnamed { file, .. } => file.file(),
        }
    }

    /// Returns whether it is new, and not an existing file.
    pub(crate) fn is_new(&self) -> bool {
        !matches!(self, Self::Existing(_))
    }

    /// Returns whether it is empty, so that holes can be left in it.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Existing(file) => file.metadata().is_ok_and(|found| found.is_file()),
            _ => true,
        }
    }

    /// Gives a complete file its name in a folder, and returns the name of the backup of the entry
    /// that had it.
    pub(crate) fn commit(
        self,
        folder: &DirPair,
        name: &CStr,
        backups: Option<&Backups<'_>>,
    ) -> std::io::Result<Option<CString>> {
        let (file, existing) = match self {
            Self::Fresh { file, mut guard } => {
                close(file.into())?;
                guard.is_whole = true;
                return Ok(None);
            }
            Self::Existing(file) => {
                close(file.into())?;
                return Ok(None);
            }
            Self::Unnamed { file, existing } => (file, existing),
        };
        let mut naming = backups.map(Backups::naming);
        if existing == Existing::Replace {
            // It has a hidden name for a moment, which another process must not remove.
            let _ = flock(file.file(), FlockOperation::NonBlockingLockExclusive);
        }
        let Some(naming) = &mut naming else { return file.commit(existing).map(|()| None) };
        if existing == Existing::Keep {
            file.commit(existing)?;
            naming.add(folder.as_fd(), name, None);
            return Ok(None);
        }
        file.commit_by(|folder, hidden, name| {
            let (hidden, name) = (c_string(hidden)?, c_string(name)?);
            Ok(rename_over(folder, &hidden, &name, Some(naming))?)
        })
    }

    /// Ends a part that a later run could resume: it is complete, and about to get its name.
    ///
    /// # Errors
    ///
    /// As [`hidden_names::unmark`]; the part is ended even then.
    pub(crate) fn end_partial(&mut self) -> Result<(), Errno> {
        let Self::Unnamed { file, .. } = self else { return Ok(()) };
        // Under its old name, it would never be removed without the mark.
        let _ = file.end_partial();
        hidden_names::unmark(file.file())
    }

    /// Removes the file, even a partial one that a later run could resume.
    pub(crate) fn discard(self) {
        if let Self::Unnamed { file, .. } = self {
            file.discard();
        }
    }
}

fn c_string(name: &OsStr) -> std::io::Result<CString> {
    Ok(CString::new(name.as_bytes())?)
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            // Nothing can be done about a file that cannot be removed.
            let _ = unlinkat(&self.folder.target, self.name, AtFlags::empty());
        }
    }
}
