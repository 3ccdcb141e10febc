//! The target of lines: a file that is appended to, standard output or standard error.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fcntl_getfl, fcntl_setfl, openat2};
use rustix::io::Errno;
use rustix::process::geteuid;
use underpass_sandbox::first_shared;

use crate::failure::{Result, WithPath};

/// The target of lines: a file that is appended to, standard output or standard error.
#[derive(Debug)]
pub(in crate::commands::serve) struct LogFile {
    /// `None` for a file that cannot be opened again.
    path: Option<PathBuf>,
    /// The device and inode of the folder of the file when it was first opened.
    folder_id: Option<(u64, u64)>,
    pub(super) name: String,
    pub(super) file: File,
}

impl LogFile {
    /// Opens the file, or standard output if there is none.
    pub(in crate::commands::serve) fn open(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            let stdout = io::stdout().as_fd().try_clone_to_owned();
            return Ok(Self::stream(stdout.with_path("opening", STDOUT)?, STDOUT));
        };
        let file = append(path).with_path("opening", path)?;
        // An absolute path names the same file after a change of folders.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let folder_id = path.parent().and_then(file_id);
        Ok(Self { name: path.display().to_string(), path: Some(path), folder_id, file })
    }

    /// Opens standard error.
    pub(in crate::commands::serve) fn standard_error() -> Result<Self> {
        let stderr = io::stderr().as_fd().try_clone_to_owned();
        Ok(Self::stream(stderr.with_path("opening", STDERR)?, STDERR))
    }

    pub(super) fn stream(stream: OwnedFd, name: &str) -> Self {
        Self { path: None, folder_id: None, name: name.to_owned(), file: stream.into() }
    }

    /// Returns the folder in which the file is created again after it was moved away.
    pub(in crate::commands::serve) fn folder(&self) -> Option<&Path> {
        self.path.as_deref().and_then(Path::parent)
    }

    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        self.file = append(path).map_err(|error| {
            let is_replaced = path.parent().and_then(file_id) != self.folder_id;
            if error.kind() != io::ErrorKind::PermissionDenied || !is_replaced {
                return error;
            }
            // The sandbox allows the folder of the start, whatever has its name now.
            io::Error::other("no access to its new folder (restart the server)")
        })?;
        Ok(())
    }
}

/// Returns the device and inode of a file.
fn file_id(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Opens a log for appending; a new one can be read by the group.
///
/// Root follows no links from the first folder on in which another user can put them: such a user,
/// as the one that the server becomes, would choose the file that root writes.
///
/// A pipe that no program reads is refused: opening it would wait, and no line would be written.
fn append(path: &Path) -> io::Result<File> {
    let file = append_now(path).map_err(|error| {
        let is_pipe = path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
        match Errno::from_io_error(&error) {
            Some(Errno::NXIO) if is_pipe => io::Error::other("no program reads this pipe"),
            _ => error,
        }
    })?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Opens a log for appending without blocking.
fn append_now(path: &Path) -> io::Result<File> {
    let path = std::path::absolute(path)?;
    let (mode, now) = (0o640, OFlags::NONBLOCK);
    let Some(shared) = first_shared(&path).filter(|_| geteuid().is_root()) else {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(mode).custom_flags(now.bits().cast_signed());
        return options.open(path);
    };
    let from = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat2(CWD, shared, from, Mode::empty(), ResolveFlags::empty())?;
    let inside = path.strip_prefix(shared).unwrap_or(&path);
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | now;
    match openat2(folder, inside, flags, Mode::from_raw_mode(mode), ResolveFlags::NO_SYMLINKS) {
        Err(Errno::LOOP) => {
            let folder = shared.display();
            let why = format!("other users can change {folder}, so links in it are not followed");
            Err(io::Error::other(why))
        }
        opened => Ok(opened?.into()),
    }
}

const STDOUT: &str = "standard output";

const STDERR: &str = "standard error";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use rustix::fs::{FileType, mknodat, open};
    use underpass_testkit::is_root;

    use super::*;

    #[test]
    fn a_pipe_is_opened_once_a_program_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = LogFile::open(Some(&path)).unwrap_err().to_string();
        assert!(error.contains("no program reads this pipe"), "{error}");
        let _reader = open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        let mut log = LogFile::open(Some(&path)).unwrap();
        assert!(!fcntl_getfl(&log.file).unwrap().contains(OFlags::NONBLOCK));
        assert!(log.reopen().is_ok());
    }

    #[test]
    fn root_follows_no_link_of_another_user() {
        if !is_root() {
            return underpass_testkit::skip("only root can give files away");
        }
        let folder = tempfile::tempdir().unwrap();
        let (shared, target) = (folder.path().join("shared"), folder.path().join("target"));
        fs::create_dir_all(shared.join("logs")).unwrap();
        fs::create_dir(&target).unwrap();
        for path in ["", "logs"] {
            chown(shared.join(path), Some(65534), Some(65534)).unwrap();
        }
        symlink(target.join("log"), shared.join("logs/log")).unwrap();
        symlink(&target, shared.join("link")).unwrap();
        for path in ["logs/log", "link/log"] {
            let error = LogFile::open(Some(&shared.join(path))).unwrap_err().to_string();
            assert!(error.contains("links in it are not followed"), "{error}");
            assert!(!target.join("log").exists());
        }
        fs::remove_file(shared.join("logs/log")).unwrap();
        let mut log = LogFile::open(Some(&shared.join("logs/log"))).unwrap();
        assert!(log.reopen().is_ok() && shared.join("logs/log").exists());
        assert!(LogFile::open(Some(Path::new("/dev/stderr"))).is_ok());
    }
}
