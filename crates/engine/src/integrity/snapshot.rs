//! A clone of a file that no other process can open, for file systems that share blocks.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, fstat, ioctl_ficlone, openat, readlink};
use rustix::io::Errno;

use super::version::Version;

/// Clones the file into an unnamed one in the same folder.
///
/// The clone is atomic: it holds one state of the file, which must be the version whose length was
/// promised.
///
/// # Errors
///
/// As open(2) for `O_TMPFILE` and ioctl_ficlone(2); `ESTALE` if the file has changed meanwhile.
pub(crate) fn clone_of(file: BorrowedFd<'_>, promised: Option<Version>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let clone = openat(CWD, folder(file)?, flags, Mode::RUSR | Mode::WUSR)?;
    ioctl_ficlone(&clone, file)?;
    let now = Version::from_stat(&fstat(file)?);
    if promised.is_some_and(|promised| promised.differs_from(&now)) {
        return Err(Errno::STALE);
    }
    Ok(clone)
}

/// Returns the folder that the file was opened in.
fn folder(file: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let link = readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
    let path = PathBuf::from(OsString::from_vec(link.into_bytes()));
    path.parent().filter(|folder| folder.is_absolute()).map(Path::to_owned).ok_or(Errno::NOENT)
}
