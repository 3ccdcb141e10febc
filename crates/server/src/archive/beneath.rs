//! Opens files below a folder, and nothing else.
//!
//! The kernel refuses paths that leave the folder or follow a symbolic link, so a name that is
//! replaced by a link at any moment gives an error rather than a file elsewhere.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use rustix::fs::OFlags;
use rustix::io::Errno;
use underpass_engine::{Version, WriterCheck, Writers};
use underpass_sys::open_beneath;

use super::error::ArchiveError;
use crate::files::root::open_unleased;

/// Opens a member of an archive for reading, below the archived folder, and waits for a moment if a
/// program may be writing to it.
///
/// # Errors
///
/// [`ArchiveError::Changed`] if the path no longer leads to that version of the file,
/// [`ArchiveError::Io`] for all other errors of openat2(2) and fstat(2).
pub fn open_member(
    folder: impl AsFd,
    path: &[u8],
    version: &Version,
) -> Result<OwnedFd, ArchiveError> {
    // A pipe or a terminal may have taken its place, which must neither block the open nor become
    // the controlling terminal.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = open_unleased(|| open_beneath(&folder, path, flags));
    let file = opened.map_err(|errno| match errno {
        errno if is_gone(errno) => ArchiveError::Changed { path: path.to_vec() },
        errno => ArchiveError::io(path, errno),
    })?;
    let now = Version::of(&file).map_err(|error: io::Error| ArchiveError::io(path, error))?;
    let mut check = WriterCheck::new();
    let now = loop {
        if version.differs_from(&now) {
            break None;
        }
        match check.check(&file, Some(now)).map_err(|error| ArchiveError::io(path, error))? {
            Writers::Stable { version, .. } => break Some(version),
            Writers::Wait(pause) => thread::sleep(pause),
            Writers::Busy => break None,
        }
    };
    match now {
        Some(now) if !version.differs_from(&now) => Ok(file),
        _ => Err(ArchiveError::Changed { path: path.to_vec() }),
    }
}

/// Returns whether the error means that an entry that existed before is gone. `ESTALE` does not:
/// the kernel has already asked a network file system twice by then, and after a restart or with
/// another export the entry may still exist.
pub(super) fn is_gone(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT // removed or renamed
            | Errno::NOTDIR // a file where a folder was
            | Errno::LOOP // a link where a folder or file was
            | Errno::NXIO // a socket where a file was
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_nfs_handle_does_not_count_as_gone() {
        assert!(is_gone(Errno::NOENT));
        assert!(!is_gone(Errno::STALE));
        assert_eq!(ArchiveError::io(b"a", Errno::STALE).status(), 503);
    }
}
