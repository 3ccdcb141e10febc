//! Opens folders by their paths, and tells the paths of open ones.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2, readlinkat};
use rustix::io::Errno;

/// Returns the path of an open file or folder from the root of the file system.
pub(crate) fn path_of(file: impl AsFd) -> Result<Vec<u8>, Errno> {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    readlinkat(CWD, link, Vec::new()).map(std::ffi::CString::into_bytes)
}

/// Returns the same without the slash at its start; without procfs, the path that was given.
pub(super) fn place(folder: &OwnedFd, given: &Path) -> Vec<u8> {
    let path = path_of(folder).unwrap_or_else(|_| given.as_os_str().as_bytes().to_vec());
    path.strip_prefix(b"/").map_or_else(|| path.clone(), <[u8]>::to_vec)
}

/// Opens a folder below another one, for the names in it.
pub(super) fn open_folder_by(
    from: &OwnedFd,
    path: &[u8],
    links: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | links;
    let mut attempts = 0;
    loop {
        match openat2(from, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) if attempts < ATTEMPTS => attempts += 1,
            outcome => return outcome,
        }
    }
}

/// Splits a path into that of its folder and the last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

pub(super) fn open_path(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty())
}

/// The number of attempts if folders are renamed during a call.
pub(super) const ATTEMPTS: u32 = 16;
