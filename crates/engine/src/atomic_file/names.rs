//! The names in a folder.

use std::ffi::{CStr, CString};
use std::os::fd::AsFd;

use rustix::fs::RawDir;
use rustix::io::Errno;

use super::open::reopen_folder;

/// Calls `visit` with each name in a folder except `.` and `..`, in the order of the file system.
/// The folder may be an `O_PATH` descriptor.
///
/// # Errors
///
/// As open(2) and getdents64(2).
pub fn for_each_name(folder: impl AsFd, mut visit: impl FnMut(&CStr)) -> Result<(), Errno> {
    find_name(folder, |name| {
        visit(name);
        false
    })
    .map(|_| ())
}

/// Returns the first name in a folder for which `is_wanted` returns true, in the order of
/// [`for_each_name`]; the rest of the folder is not read.
///
/// # Errors
///
/// As [`for_each_name`].
pub(super) fn find_name(
    folder: impl AsFd,
    mut is_wanted: impl FnMut(&CStr) -> bool,
) -> Result<Option<CString>, Errno> {
    let listed = reopen_folder(folder)?;
    // lowntfs-3g drops entries that do not fit if the buffer is smaller than a page.
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut entries = RawDir::new(listed, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") && is_wanted(name) {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

/// Returns the names in a folder, as [`for_each_name`] gives them.
///
/// # Errors
///
/// As [`for_each_name`].
pub fn names(folder: impl AsFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for_each_name(folder, |name| names.push(name.to_owned()))?;
    Ok(names)
}

/// The size of the buffer for entries, in bytes.
const BUFFER: usize = 32 << 10;
