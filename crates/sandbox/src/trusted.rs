//! Opens paths as root, without following links that another user may have put there.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, absolute};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fcntl_getfl, fcntl_setfl, openat2};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Opens a log for appending; a new log is readable by its group.
///
/// Root follows no links from the first folder on in which another user can create them: such a
/// user, even the one that the server switches to, could choose the file that root writes.
///
/// # Errors
///
/// As open(2), if such a link is found, and for a pipe that no program reads: opening it would
/// block, and no line would be written.
pub fn open_log(path: &Path) -> io::Result<File> {
    let file = open_log_now(path).map_err(|error| {
        let is_pipe = path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
        match Errno::from_io_error(&error) {
            Some(Errno::NXIO) if is_pipe => io::Error::other("no program reads this pipe"),
            _ => error,
        }
    })?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Opens a log without blocking.
fn open_log_now(path: &Path) -> io::Result<File> {
    let path = absolute(path)?;
    let (mode, now) = (0o640, OFlags::NONBLOCK);
    let Some(shared) = first_shared(&path).filter(|_| geteuid().is_root()) else {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(mode).custom_flags(now.bits().cast_signed());
        return options.open(path);
    };
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | now;
    match open_trusted(&path, flags, Mode::from_raw_mode(mode)) {
        Err(Errno::LOOP) => {
            let folder = shared.display();
            let why = format!("other users can change {folder}, so links in it are not followed");
            Err(io::Error::other(why))
        }
        opened => Ok(opened?.into()),
    }
}

/// Opens an absolute path as root, without following links that another user may have created.
pub(crate) fn open_trusted(path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let shared = first_shared(path).unwrap_or(path);
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = openat2(CWD, shared, folder, Mode::empty(), ResolveFlags::empty())?;
    let below = Path::new(".").join(path.strip_prefix(shared).unwrap_or(path));
    openat2(above, below, flags, mode, ResolveFlags::NO_SYMLINKS)
}

/// Returns the first folder of an absolute path in which users other than root can create entries.
fn first_shared(path: &Path) -> Option<&Path> {
    let folders: Vec<_> = path.ancestors().collect();
    folders.into_iter().rev().find(|folder| {
        fs::metadata(folder).is_ok_and(|it| {
            let is_groups = it.mode() & 0o020 != 0 && it.gid() != 0;
            it.is_dir() && (it.uid() != 0 || it.mode() & 0o002 != 0 || is_groups)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use rustix::fs::{FileType, mknodat, open};
    use underpass_testkit::{is_root, skip};

    use super::*;

    #[test]
    fn a_pipe_is_opened_once_a_program_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = open_log(&path).unwrap_err().to_string();
        assert!(error.contains("no program reads this pipe"), "{error}");
        let _reader = open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        let log = open_log(&path).unwrap();
        assert!(!fcntl_getfl(&log).unwrap().contains(OFlags::NONBLOCK));
        assert!(open_log(&path).is_ok());
    }

    #[test]
    fn root_follows_no_link_of_another_user() {
        if !is_root() {
            return skip("only root can give files away");
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
            let error = open_log(&shared.join(path)).unwrap_err().to_string();
            assert!(error.contains("links in it are not followed"), "{error}");
            assert!(!target.join("log").exists());
        }
        fs::remove_file(shared.join("logs/log")).unwrap();
        let log = open_log(&shared.join("logs/log")).unwrap();
        assert_eq!(log.metadata().unwrap().mode() & 0o137, 0);
        assert!(open_log(&shared.join("logs/log")).is_ok() && shared.join("logs/log").exists());
        assert!(open_log(Path::new("/dev/stderr")).is_ok());
    }
}
