//! The marker of a folder that is not complete, by which a resumed command means the same target.
//!
//! `cp -a --resume s k` makes the folder `k`, and would put `k/s` into it when it is repeated. While the
//! copy is not complete there is therefore an empty file in `k` whose name tells the source. It is
//! there before `k` has its name, and goes when nothing is left to be copied.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fchmod, fstat, futimens, openat, statat, unlinkat,
};
use rustix::io::Errno;

use super::metadata::times;
use super::names;
use super::settings::Follow;
use super::walk::identity;

/// Marks a folder as one whose copy is not complete.
///
/// # Errors
///
/// As open(2).
pub(super) fn set(target: impl AsFd, source: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(target, name(source), flags, Mode::RUSR | Mode::WUSR).map(drop)
}

/// Takes the mark away, if there is one: last of all, when the folder has its mode and times, of which
/// the latter are given again.
pub(super) fn remove(target: &OwnedFd, source: &OwnedFd, original: Option<&Stat>) {
    let name = name(source);
    if !is_marker(target, &name) {
        return;
    }
    // What stays in spite of all is taken away by the next command.
    if unlinkat(target, &name, AtFlags::empty()) == Err(Errno::ACCESS)
        && let Ok(stat) = fstat(target)
    {
        // A folder that is not writable, as its original.
        let _ = fchmod(target, Mode::RWXU);
        let _ = unlinkat(target, &name, AtFlags::empty());
        let _ = fchmod(target, Mode::from_raw_mode(stat.st_mode));
    }
    if let Some(original) = original {
        let _ = futimens(target, &times(original));
    }
}

/// Whether a folder is a copy of this source that is not complete.
pub(super) fn is_set(target: &Path, source: &Path, follow: Follow) -> bool {
    let open = |path: &Path, more: OFlags| {
        openat(
            CWD,
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more,
            Mode::empty(),
        )
    };
    let nofollow = if follow == Follow::Never { OFlags::NOFOLLOW } else { OFlags::empty() };
    match (open(source, nofollow), open(target, OFlags::empty())) {
        (Ok(source), Ok(target)) => is_marker(target.as_fd(), &name(&source)),
        _ => false,
    }
}

fn is_marker(target: impl AsFd, name: &CString) -> bool {
    statat(target, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size == 0
    })
}

fn name(source: &OwnedFd) -> CString {
    names::hidden(NAME, Some(identity(source)))
}

/// What the name of a marker begins with, behind a dot.
pub(super) const NAME: &std::ffi::CStr = c"unfinished";
