//! The files to send. Unless links are followed, those in a named folder are opened beneath it and
//! never through a link: an entry that becomes a link while others are sent leads nowhere.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use underpass_copy::ends::{Input, blocking};
use underpass_engine::hint::{Action, PathError};
use underpass_sys::open_beneath;

use crate::failure::{Failure, Result, WithPath};
use crate::signals::{interruptible, opener};

/// A file or folder to send.
#[derive(Clone, Debug)]
pub(crate) struct LocalPath {
    path: PathBuf,
    /// The folder to stay in; `None` if links are followed.
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
    pub(super) fn named(path: PathBuf) -> Self {
        Self { path, root: None }
    }

    /// Returns the path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its metadata; a link is followed only if it was named, or with -L.
    pub(super) fn look(&self) -> Result<Metadata> {
        let found = match &self.root {
            None => fs::metadata(&self.path),
            Some(root) => {
                let how = OFlags::PATH | OFlags::NOFOLLOW;
                root.open(&self.path, how).map_err(io::Error::from).and_then(|it| it.metadata())
            }
        };
        found.map_err(|error| self.failure("opening", error))
    }

    /// Opens a file.
    pub(super) fn open(&self, cancel: &AtomicBool) -> Result<Input> {
        let Some(root) = &self.root else { return Ok(Input::open(&self.path, &opener(cancel))?) };
        let how = OFlags::RDONLY | OFlags::NOCTTY;
        // It may be a FIFO by now, which would wait for its other end.
        let opened = match root.open(&self.path, how | OFlags::NONBLOCK) {
            // A lease: the kernel has asked its holder to release it.
            Err(Errno::WOULDBLOCK) => {
                let (root, path) = (Arc::clone(root), self.path.clone());
                interruptible(cancel, move || Ok(root.open(&path, how)?))
            }
            opened => opened.map_err(io::Error::from).and_then(blocking),
        };
        let file = opened.map_err(|error| self.failure("opening", error))?;
        if !file.metadata().is_ok_and(|found| found.is_file()) {
            let path = self.path.display();
            return Err(Failure::line(format!("opening {path}: it is no longer a file")));
        }
        Ok(Input::of(file, &self.path))
    }

    /// Returns the entries of a folder, sorted by name. Unless links are followed, they and
    /// everything below them are opened beneath the named folder.
    pub(super) fn entries(&self, follows: bool) -> Result<Vec<(OsString, Self)>> {
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

    /// Returns the failure to open it.
    fn failure(&self, action: impl Into<Action>, error: io::Error) -> Failure {
        if self.root.is_some() && Errno::from_io_error(&error) == Some(Errno::LOOP) {
            let path = self.path.display();
            let reason = "it, or a folder above it, has become a link";
            return Failure::line(format!("opening {path}: {reason}"));
        }
        PathError::new(action, &self.path, error).into()
    }
}

impl LocalRoot {
    /// Opens a path below this one.
    fn open(&self, path: &Path, how: OFlags) -> std::result::Result<File, Errno> {
        let below = path.strip_prefix(&self.path).map_err(|_| Errno::XDEV)?;
        open_beneath(&self.folder, below.as_os_str().as_bytes(), how).map(File::from)
    }
}
