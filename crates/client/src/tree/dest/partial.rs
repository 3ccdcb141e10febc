//! The partial file of a folder, in which a large file of an archive is assembled until it is
//! complete.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Timespec, statat, unlinkat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{AtomicFile, Existing};
use underpass_engine::errno;

use super::{DestFolder, is_same};
use crate::journal::FileId;
use crate::tree::paths::PARTIAL;

impl DestFolder {
    /// Opens or creates the partial file, which a later process can resume.
    pub(in crate::tree) fn open_partial(&self, path: &[u8]) -> Result<AtomicFile, Errno> {
        self.within(path, |parent, name| {
            let folder = rustix::io::fcntl_dupfd_cloexec(parent, 0)?;
            let (name, partial) = (OsStr::from_bytes(name), OsStr::new(PARTIAL));
            AtomicFile::partial(folder, name, partial, 0o600, Existing::Replace).map_err(errno::of)
        })
    }

    /// Returns whether the partial file is the recorded one and has the first `done` bytes of this
    /// file. If a file of this size and time has the name already, the bytes belong to a later one.
    pub(in crate::tree) fn has_partial(
        &self,
        path: &[u8],
        size: u64,
        modified: Timespec,
        part: Option<FileId>,
        done: u64,
    ) -> bool {
        let found = self.within(path, |parent, name| {
            let named = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
            let partial = statat(parent, PARTIAL, AtFlags::SYMLINK_NOFOLLOW)?;
            let has_bytes = u64::try_from(partial.st_size).is_ok_and(|len| len >= done);
            // Another program may have replaced it.
            let found = FileId::named(parent, OsStr::new(PARTIAL))?;
            let is_named = named.is_ok_and(|named| is_same(parent, &named, size, modified));
            Ok(part == Some(found) && has_bytes && !is_named)
        });
        found.unwrap_or(false)
    }

    /// Removes the partial file.
    pub(in crate::tree) fn remove_partial(&self, path: &[u8]) -> Result<(), Errno> {
        self.within(path, |parent, _| match unlinkat(parent, PARTIAL, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            outcome => outcome,
        })
    }
}
