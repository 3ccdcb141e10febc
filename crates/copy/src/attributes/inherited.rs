//! The attributes that new entries inherit from the folder that they are made in.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{fgetxattr, getxattr};
use rustix::io::Errno;
use underpass_engine::atomic_file::reopen_folder;

/// The attributes that new entries inherit from the folder that they are made in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InheritedAttrs {
    /// Whether they get an ACL.
    pub(crate) acl: bool,
    /// Whether they get the folder's group; new folders then get the set-group-id bit, too.
    pub(crate) group: bool,
}

/// Returns what new entries of a folder inherit.
pub(crate) fn inherited(folder: BorrowedFd<'_>) -> InheritedAttrs {
    let acl = match default_acl(folder, &mut [0; 1]) {
        Ok(_) | Err(Errno::RANGE) => true,
        Err(_) => false,
    };
    let group = rustix::fs::fstat(folder).is_ok_and(|stat| stat.st_mode & 0o2000 != 0);
    InheritedAttrs { acl, group }
}

/// Reads the ACL that new entries of a folder get, and returns its length.
pub(super) fn default_acl(folder: BorrowedFd<'_>, value: &mut [u8]) -> Result<usize, Errno> {
    let name = c"system.posix_acl_default";
    // Attributes cannot be read through an O_PATH descriptor.
    match fgetxattr(folder, name, &mut *value) {
        Err(Errno::BADF) => {
            let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
            match reopen_folder(folder) {
                Ok(folder) => fgetxattr(folder, name, value),
                Err(_) => getxattr(path, name, value),
            }
        }
        found => found,
    }
}
