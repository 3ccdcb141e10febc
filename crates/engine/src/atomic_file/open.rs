//! How entries of folders are opened.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
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
