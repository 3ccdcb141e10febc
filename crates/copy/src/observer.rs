//! The observer of a running copy: its reports and questions.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::FileType;

/// A program that watches a copy, and answers its questions. Every method does nothing, or gives
/// the obvious answer, unless it is implemented.
///
/// All but [`progress`](Self::progress) are called by the threads that copy.
pub trait CopyObserver: Sync {
    /// Receives the progress of the copy. It is called some ten times a second, by the thread that
    /// has called [`copy`](crate::copy).
    fn progress(&self, progress: &CopyProgress) {
        let _ = progress;
    }

    /// Receives an entry that a dry run would have copied, and its target.
    fn would_copy(&self, from: &Path, to: &Path) {
        let _ = (from, to);
    }

    /// Returns whether [`made`](Self::made) and [`removed`](Self::removed) are to be called.
    fn lists(&self) -> bool {
        false
    }

    /// Receives an entry that was copied or linked, and its target; for a folder that was made,
    /// before its contents. `backup` is the new name of the entry that had the name before.
    fn made(&self, from: &Path, to: &Path, backup: Option<&Path>) {
        let _ = (from, to, backup);
    }

    /// Receives an entry that was removed, or gives way to a copy with its name.
    fn removed(&self, path: &Path, is_folder: bool) {
        let _ = (path, is_folder);
    }

    /// Receives an entry that a dry run would have removed.
    fn would_remove(&self, path: &Path) {
        let _ = path;
    }

    /// Receives a source that was named twice, and is copied once.
    fn named_twice(&self, from: &Path) {
        let _ = from;
    }

    /// Answers whether the file at `path` may be replaced, where
    /// [`CopyOptions::interactive`](crate::CopyOptions::interactive) is set. Calls never
    /// overlap.
    ///
    /// # Errors
    ///
    /// If it cannot answer; then the file is not copied.
    fn may_replace(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(true)
    }

    /// Returns whether [`excludes`](Self::excludes) is to be asked about each entry.
    fn filters(&self) -> bool {
        false
    }

    /// Answers whether an entry is left out. `path` is its path below the source, and `kind` its
    /// type; links are not followed.
    fn excludes(&self, path: &[u8], kind: FileType) -> bool {
        let _ = (path, kind);
        false
    }

    /// Answers whether a file of this size in bytes may be copied. If not, that is an error
    /// (`ENOSPC`), and the copy ends.
    fn has_room(&self, len: u64) -> bool {
        let _ = len;
        true
    }

    /// Runs `open`, which may wait indefinitely for another process, as open(2) of a FIFO waits for
    /// its writer. A program that can be interrupted runs it on another thread.
    ///
    /// # Errors
    ///
    /// Returns the result of `open`, or `EINTR` if the copy was cancelled before it returned.
    fn open(&self, open: OpenCall) -> io::Result<OwnedFd> {
        open()
    }
}

/// A call of open(2) that may wait.
pub type OpenCall = Box<dyn FnOnce() -> io::Result<OwnedFd> + Send>;

/// The progress of a copy.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CopyProgress {
    /// Files that were copied.
    pub files: u64,
    /// Bytes that were copied.
    pub bytes: u64,
    /// Bytes that are to be copied, if that is known.
    pub expected: Option<u64>,
    /// Time since the first byte.
    pub elapsed: Duration,
}
