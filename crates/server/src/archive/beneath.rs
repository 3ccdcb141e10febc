//! Opens what is in a folder, and nothing else.
//!
//! The kernel keeps the path beneath the folder and off symbolic links, so a name that is swapped
//! for a link at any moment opens nothing rather than a file elsewhere.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, retry_on_intr};
use underpass_engine::{Version, WriterCheck, Writers};

use super::error::ArchiveError;

/// Opens a member of an archive for reading, beneath the archived folder, and waits for a moment if
/// somebody may be writing to it.
///
/// # Errors
///
/// [`ArchiveError::Changed`] if the path does not lead to that version of the file any more,
/// [`ArchiveError::Io`] as openat2(2) and fstat(2) for everything else.
pub fn open_member(
    folder: impl AsFd,
    path: &[u8],
    version: &Version,
) -> Result<OwnedFd, ArchiveError> {
    // Somebody may have put a pipe or a terminal there, which must not stop or take over.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(folder.as_fd(), path, flags).map_err(|errno| match errno {
        errno if is_gone(errno) => ArchiveError::Changed { path: path.to_vec() },
        errno => ArchiveError::io(path, errno),
    })?;
    let now = Version::of(&file).map_err(|error: io::Error| ArchiveError::io(path, error))?;
    let mut check = WriterCheck::new();
    let now = loop {
        if version.differs_from(&now) {
            break None;
        }
        match check.look(&file, Some(now)).map_err(|error| ArchiveError::io(path, error))? {
            Writers::AtRest { version, .. } => break Some(version),
            Writers::Wait(pause) => thread::sleep(pause),
            Writers::Busy => break None,
        }
    };
    match now {
        Some(now) if !version.differs_from(&now) => Ok(file),
        _ => Err(ArchiveError::Changed { path: path.to_vec() }),
    }
}

/// Opens a path beneath a folder, never by way of a link; an empty path is the folder itself.
///
/// A path longer than the kernel takes at once is gone along in several steps.
///
/// # Errors
///
/// As openat2(2).
pub(crate) fn open(folder: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut step: Option<OwnedFd> = None;
    let mut rest = if path.is_empty() { b"." } else { path };
    loop {
        let from = step.as_ref().map_or(folder, AsFd::as_fd);
        let cut = rest.get(..PATH_MAX).and_then(|head| head.iter().rposition(|&byte| byte == b'/'));
        let Some(cut) = cut else { return open_at(from, rest, flags) };
        step = Some(open_at(from, &rest[..cut], OFlags::PATH | OFlags::DIRECTORY)?);
        rest = &rest[cut + 1..];
    }
}

/// Whether the error means that what was there before is not there any more.
pub(super) fn is_gone(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT // removed or renamed
            | Errno::NOTDIR // a file where a folder was
            | Errno::LOOP // a link where a folder or file was
            | Errno::STALE // removed on the NFS server
            | Errno::NXIO // a socket where a file was
    )
}

fn open_at(folder: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    retry_on_intr(|| openat2(folder, path, flags, Mode::empty(), resolve))
}

/// The longest path that the kernel takes, with the zero behind it.
const PATH_MAX: usize = 4_096;
