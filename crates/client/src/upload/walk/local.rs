//! The files to send. Unless links are followed, the files of a named folder are opened beneath it
//! and never through a link: an entry that is replaced by a link meanwhile leads nowhere.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{CWD, Dir, Mode, OFlags, fcntl_getfl, fcntl_setfl, openat};
use rustix::io::Errno;
use underpass_engine::hint::{Action, PathError, WithPath};
use underpass_engine::wait::Limits;
use underpass_sys::open_beneath;
use underpass_transport::interruptible;

use super::WalkError;

/// A file or folder to send.
#[derive(Clone, Debug)]
pub struct LocalPath {
    path: PathBuf,
    /// The folder beneath which it is opened; `None` if links are followed.
    root: Option<Arc<LocalRoot>>,
}

/// A named folder.
#[derive(Debug)]
struct LocalRoot {
    folder: OwnedFd,
    path: PathBuf,
}

impl LocalPath {
    /// Returns a path that the user has named, in which links are followed.
    #[must_use]
    pub fn named(path: PathBuf) -> Self {
        Self { path, root: None }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its metadata; a link is followed only if the user named it, or if all are followed.
    pub(super) fn look(&self) -> io::Result<Metadata> {
        match &self.root {
            None => fs::metadata(&self.path),
            Some(root) => root.open(&self.path, OFlags::PATH | OFlags::NOFOLLOW)?.metadata(),
        }
    }

    /// Opens a file beneath a named folder; `None` for other paths, in which links are followed.
    /// Waits for the holder of a lease until `cancel` is set.
    ///
    /// # Errors
    ///
    /// Those of openat2(2), and if it is no longer a file, or is reached through a link.
    pub fn open_beneath(&self, cancel: &AtomicBool) -> Result<Option<File>, WalkError> {
        let Some(root) = &self.root else { return Ok(None) };
        let how = OFlags::RDONLY | OFlags::NOCTTY;
        // It may be a FIFO by now, which would block until it has a writer.
        let opened = match root.open(&self.path, how | OFlags::NONBLOCK) {
            // The kernel has asked the holder of a lease to release it.
            Err(Errno::WOULDBLOCK) => {
                let (root, path) = (Arc::clone(root), self.path.clone());
                let limits = Limits::new(None, Some(cancel));
                interruptible(limits, move || Ok(root.open(&path, how)?))
            }
            opened => opened.and_then(blocking).map_err(io::Error::from),
        };
        let file = opened.map_err(|error| self.failure("opening", error))?;
        if !file.metadata().is_ok_and(|found| found.is_file()) {
            return Err(WalkError::NotAFile(self.path.clone()));
        }
        Ok(Some(file))
    }

    /// Returns the entries of a folder, sorted by name. Unless links are followed, everything below
    /// is opened beneath the named folder.
    pub(super) fn entries(&self, follows: bool) -> Result<Vec<(OsString, Self)>, WalkError> {
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = match &self.root {
            None => openat(CWD, &self.path, how, Mode::empty()).map(File::from),
            Some(root) => root.open(&self.path, how),
        };
        let folder = folder.map_err(|errno| self.failure(Action::Reading, errno.into()))?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder).with_path(Action::Reading, &self.path)? {
            let name =
                entry.with_path(Action::Reading, &self.path)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort();
        let root = match &self.root {
            Some(root) => Some(Arc::clone(root)),
            None if follows => None,
            None => Some(Arc::new(LocalRoot { folder: folder.into(), path: self.path.clone() })),
        };
        let entry = |name: OsString| {
            let path = self.path.join(&name);
            (name, Self { path, root: root.clone() })
        };
        Ok(names.into_iter().map(entry).collect())
    }

    /// Returns the error for a failure to open it.
    fn failure(&self, action: impl Into<Action>, error: io::Error) -> WalkError {
        if self.root.is_some() && Errno::from_io_error(&error) == Some(Errno::LOOP) {
            return WalkError::BecameLink(self.path.clone());
        }
        PathError::new(action, &self.path, error).into()
    }
}

impl LocalRoot {
    /// Opens a path below this one.
    fn open(&self, path: &Path, how: OFlags) -> Result<File, Errno> {
        let below = path.strip_prefix(&self.path).map_err(|_| Errno::XDEV)?;
        open_beneath(&self.folder, below.as_os_str().as_bytes(), how).map(File::from)
    }
}

/// Returns the file without `O_NONBLOCK`.
fn blocking(file: File) -> Result<File, Errno> {
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}
