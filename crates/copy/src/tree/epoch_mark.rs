//! Records which parts of files were written since the machine was booted and the file system
//! mounted.
//!
//! In that time the page cache has every byte, even if the process that wrote it was killed. After
//! a power cut, or after a disk was removed, a file can have its size and time but not its bytes.
//! A mount epoch names one boot of the machine and one mount; it is written to the marker of an
//! unfinished folder, and to an attribute of a part of a large file.

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;
use underpass_engine::atomic_file::remove_attribute;
use underpass_engine::mount_epoch::MAX_LEN;

/// Returns whether the part of a file was written in this mount epoch alone.
pub(crate) fn is_of(file: impl AsFd, epoch: &str) -> bool {
    let mut value = [0; MAX_LEN];
    let len = fgetxattr(file, ATTRIBUTE, &mut value[..]).unwrap_or(0);
    value[..len] == *epoch.as_bytes()
}

/// Marks the part of a file as written in this mount epoch. Where that is not possible, a later run
/// compares the part with its original before it resumes it.
pub(crate) fn mark(file: impl AsFd, epoch: &str) {
    let _ = fsetxattr(file, ATTRIBUTE, epoch.as_bytes(), XattrFlags::empty());
}

/// Removes the mark, which a complete file does not have.
///
/// # Errors
///
/// As fremovexattr(2), if there is a mark.
pub(crate) fn forget(file: impl AsFd) -> Result<(), Errno> {
    remove_attribute(file, ATTRIBUTE)
}

const ATTRIBUTE: &CStr = c"user.underpass.written";
