//! Opens folders.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Opens a folder in another one.
///
/// # Errors
///
/// As openat(2): `ENOTDIR` or `ELOOP` if the name is that of a link.
pub(crate) fn open_folder(parent: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    open_source(parent, name, false)
}

/// Opens a folder that is not listed, in another one: without `needs_attributes` also one that may
/// be written to or searched, but not read. Its attributes cannot be read or changed then.
///
/// # Errors
///
/// As openat(2).
pub(crate) fn open_unlisted(
    parent: impl AsFd,
    name: impl Arg + Copy,
    follows: bool,
    needs_attributes: bool,
) -> Result<OwnedFd, Errno> {
    match open_source(&parent, name, follows) {
        Err(Errno::ACCESS) if !needs_attributes => {
            let nofollow = if follows { OFlags::empty() } else { OFlags::NOFOLLOW };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | nofollow;
            openat(parent, name, flags, Mode::empty())
        }
        opened => opened,
    }
}

/// Opens a folder that is copied, through a link if that `follows`.
///
/// # Errors
///
/// As openat(2).
pub(crate) fn open_source(
    parent: impl AsFd,
    name: impl Arg,
    follows: bool,
) -> Result<OwnedFd, Errno> {
    let nofollow = if follows { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | nofollow;
    openat(parent, name, flags, Mode::empty())
}
