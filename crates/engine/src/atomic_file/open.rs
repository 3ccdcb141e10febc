//! How entries of folders are found and opened.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Opens a folder with `O_PATH`, as the start of other paths: without permission to read it.
///
/// # Errors
///
/// As openat(2).
pub fn folder_at(at: impl AsFd, path: impl Arg) -> Result<OwnedFd, Errno> {
    openat(at, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens an open folder again, for its names, its attributes or a sync: it may be open with
/// `O_PATH`, and the new descriptor has its own cursor.
///
/// # Errors
///
/// As openat(2).
pub fn reopen_folder(folder: impl AsFd) -> Result<OwnedFd, Errno> {
    openat(folder, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens an entry of a folder for reading. A link is not followed, a FIFO is not waited for, and a
/// terminal does not become the controlling one.
///
/// # Errors
///
/// As openat(2): `ELOOP` for a link, `ENXIO` for a socket.
pub fn open_entry(folder: impl AsFd, name: impl Arg) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    openat(folder, name, flags | OFlags::CLOEXEC, Mode::empty()).map(File::from)
}

/// Opens a file for reading without waiting for the writer of a FIFO. If another process has a lease
/// on the file, waits until that is released, or the kernel breaks it.
///
/// # Errors
///
/// As open(2): `ENXIO` for a socket.
pub fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = open_past_lease(|how| openat(CWD, path, flags | how, Mode::empty()));
    Ok(opened?.into())
}

/// Opens a file by a call that takes additional flags, at first with `O_NONBLOCK`. If another process
/// has a lease on the file, waits until that is released, or the kernel breaks it.
///
/// # Errors
///
/// Those of `open`.
pub fn open_past_lease<T>(open: impl Fn(OFlags) -> Result<T, Errno>) -> Result<T, Errno> {
    match open(OFlags::NONBLOCK) {
        // The kernel has asked the holder of a lease to release it: only regular files have one.
        Err(Errno::WOULDBLOCK) => open(OFlags::empty()),
        opened => opened,
    }
}

/// Returns the attributes of the entry of a name, which may be a link; `None` if there is none.
///
/// # Errors
///
/// As fstatat(2).
pub fn stat_entry(folder: impl AsFd, name: impl Arg) -> Result<Option<Stat>, Errno> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    }
}
