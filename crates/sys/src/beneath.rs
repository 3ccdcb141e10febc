//! Opens paths beneath a folder and nothing outside it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, retry_on_intr};

/// Opens a path beneath a folder without following any symbolic link; an empty path is the folder
/// itself. The new descriptor is closed on exec.
///
/// The kernel keeps the path beneath the folder, so if a name is replaced by a link at any moment,
/// the open fails rather than opening a file elsewhere. A path longer than `PATH_MAX` is walked in
/// several steps.
///
/// # Errors
///
/// As openat2(2): `ELOOP` for a symbolic link, `EXDEV` for a path that leads out of the folder.
pub fn open_beneath(folder: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut step: Option<OwnedFd> = None;
    let mut rest = if path.is_empty() { b"." } else { path };
    loop {
        let from = step.as_ref().map_or(folder.as_fd(), AsFd::as_fd);
        let cut = rest.get(..PATH_MAX).and_then(|head| head.iter().rposition(|&byte| byte == b'/'));
        let Some(cut) = cut else { return open_step(from, rest, flags) };
        step = Some(open_step(from, &rest[..cut], OFlags::PATH | OFlags::DIRECTORY)?);
        rest = &rest[cut + 1..];
    }
}

fn open_step(folder: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    retry_on_intr(|| openat2(folder, path, flags, Mode::empty(), resolve))
}

/// The longest path that the kernel accepts, including its final zero.
const PATH_MAX: usize = 4_096;
