//! Where the bytes of a copy go until it is whole.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, ftruncate, openat, unlinkat,
};
use rustix::io::Errno;
use underpass_engine::atomic_file::{self, AtomicFile, Existing};

use crate::folder::{Folder, State};

/// A file on its way to its name.
///
/// In a folder that we have made, which has no name of its own yet, the file has its name from the
/// beginning: that is a third cheaper than to give it one later. Elsewhere it has none until it is
/// whole.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    /// In a folder that nobody can take for the copy yet.
    Fresh { file: File, remains: Remains<'a> },
    /// Unnamed.
    AtomicFile { landing: Box<AtomicFile>, existing: Existing },
    /// A file that was there.
    Old(File),
}

/// Removes what was not finished.
#[derive(Debug)]
pub(crate) struct Remains<'a> {
    folder: &'a Folder,
    name: &'a CStr,
    is_whole: bool,
}

impl<'a> Place<'a> {
    /// A new file with these permissions.
    pub(crate) fn new(
        folder: &'a Folder,
        name: &'a CStr,
        mode: u32,
        existing: Existing,
    ) -> Result<Self, std::io::Error> {
        if folder.state == State::Fresh {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            let file = openat(&folder.target, name, flags, Mode::from_raw_mode(mode))?.into();
            let remains = Remains { folder, name, is_whole: false };
            return Ok(Self::Fresh { file, remains });
        }
        let target = folder.target.as_fd().try_clone_to_owned()?;
        let landing = AtomicFile::create_in(target, OsStr::from_bytes(name.to_bytes()), mode)?;
        Ok(Self::AtomicFile { landing: Box::new(landing), existing })
    }

    /// A file that outlives this process under the name `partial` until it is whole; one that does not
    /// if another process is at that.
    pub(crate) fn partial(
        folder: &'a Folder,
        entry_name: &'a CStr,
        partial: &OsStr,
        mode: u32,
        existing: Existing,
    ) -> Result<Self, std::io::Error> {
        let target = folder.target.as_fd().try_clone_to_owned()?;
        let name = OsStr::from_bytes(entry_name.to_bytes());
        let landing = AtomicFile::partial(target, name, partial, mode, Existing::Replace)?;
        match atomic_file::take(landing.file(), &folder.target, partial) {
            true => Ok(Self::AtomicFile { landing: Box::new(landing), existing }),
            false => Self::new(folder, entry_name, mode, existing),
        }
    }

    /// The file that has the name, emptied; a new one if there is none.
    pub(crate) fn in_place(
        folder: &Folder,
        name: &CStr,
        mode: u32,
        force: bool,
        original: &File,
    ) -> Result<Self, Errno> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = || openat(&folder.target, name, flags, Mode::from_raw_mode(mode));
        let file = match open() {
            // What cannot be written to can perhaps be removed, as coreutils does.
            Err(Errno::ACCESS | Errno::TXTBSY | Errno::PERM) if force => {
                unlinkat(&folder.target, name, AtFlags::empty())?;
                open()
            }
            opened => opened,
        };
        let file: File = file?.into();
        // Looked at again before its bytes are thrown away: the name may have changed hands.
        let (here, from) = (fstat(&file)?, fstat(original)?);
        if (here.st_dev, here.st_ino) == (from.st_dev, from.st_ino) {
            return Err(Errno::EXIST);
        }
        if FileType::from_raw_mode(here.st_mode) == FileType::RegularFile {
            ftruncate(&file, 0)?;
        }
        Ok(Self::Old(file))
    }

    /// The file, to be written.
    pub(crate) fn file(&self) -> &File {
        match self {
            Self::Fresh { file, .. } | Self::Old(file) => file,
            Self::AtomicFile { landing, .. } => landing.file(),
        }
    }

    /// Whether it has no facts of its own yet.
    pub(crate) fn is_new(&self) -> bool {
        !matches!(self, Self::Old(_))
    }

    /// Whether it has no bytes, so that holes can be left in it.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Old(file) => file.metadata().is_ok_and(|found| found.is_file()),
            _ => true,
        }
    }

    /// It is whole: it gets its name.
    pub(crate) fn commit(self) -> std::io::Result<()> {
        match self {
            Self::Fresh { mut remains, .. } => {
                remains.is_whole = true;
                Ok(())
            }
            Self::AtomicFile { landing, existing } => {
                if existing == Existing::Replace {
                    // It has a hidden name for a moment, which another process must not sweep up.
                    let _ = flock(landing.file(), FlockOperation::NonBlockingLockExclusive);
                }
                landing.commit(existing)
            }
            Self::Old(_) => Ok(()),
        }
    }

    /// Gives it up, with what a partial file would keep.
    pub(crate) fn discard(self) {
        if let Self::AtomicFile { landing, .. } = self {
            landing.discard();
        }
    }
}

impl Drop for Remains<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            // Nothing can be done about a file that cannot be removed.
            let _ = unlinkat(&self.folder.target, self.name, AtFlags::empty());
        }
    }
}
