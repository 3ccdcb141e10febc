//! Entries that cannot be opened: links, devices, FIFOs and sockets.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use underpass_engine::atomic_file::remove_attribute_at;

/// An entry that cannot be opened, by its name in an open folder.
#[derive(Clone, Copy)]
pub(crate) struct NamedAt<'a> {
    pub(crate) folder: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
}

impl NamedAt<'_> {
    /// Returns a path for calls that take no descriptor. It stays valid if the folder is moved.
    pub(super) fn path(self) -> PathBuf {
        let name = OsStr::from_bytes(self.name.to_bytes());
        if Path::new(name).is_absolute() {
            return PathBuf::from(name);
        }
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd())).join(name)
    }
}

/// Removes an attribute of an entry that cannot be opened, as [`remove_attribute_at`] does.
pub(super) fn remove_attribute_of(path: &Path, name: &CStr) -> Result<(), Errno> {
    match remove_attribute_at(path, name) {
        // Without /proc the attributes of entries that cannot be opened are out of reach.
        Err(Errno::NOENT) if !Path::new("/proc/self/fd").exists() => Ok(()),
        removed => removed,
    }
}
