//! Checks the serving user's access to files before clients depend on it.

use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::error::SandboxError;

/// Checks that the served folder or file can be read.
///
/// # Errors
///
/// [`SandboxError::Unreadable`].
pub(crate) fn check_readable(root: &Path) -> Result<(), SandboxError> {
    let access = if root.is_dir() { FOLDER } else { Access::READ_OK };
    check(root, access).map_err(|errno| SandboxError::Unreadable {
        path: root.to_owned(),
        source: io::Error::from(errno),
    })
}

pub(crate) fn is_readable(file: &Path) -> bool {
    check(file, Access::READ_OK).is_ok()
}

/// Checks that entries of this folder can be created and removed.
pub(crate) fn check_writable(folder: &Path) -> Result<(), Errno> {
    check(folder, Access::WRITE_OK | Access::EXEC_OK)
}

/// Checks with the effective rights of the process, as open(2) does (faccessat2(2), since Linux
/// 5.8).
fn check(path: &Path, access: Access) -> Result<(), Errno> {
    match accessat(CWD, path, access, AtFlags::EACCESS) {
        // An older kernel, or a seccomp filter: requests will reveal a lack of access later.
        Err(Errno::NOSYS | Errno::PERM | Errno::NOTSUP) => Ok(()),
        answer => answer,
    }
}

/// The permissions needed to list a folder and open its entries.
const FOLDER: Access = Access::READ_OK.union(Access::EXEC_OK);
