//! Locks uploads, so that only one connection at a time resumes each: the newest one, because a
//! client that asks again knows that its last attempt is lost, long before the server can
//! (draft-ietf-httpbis-resumable-upload 4.6).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use underpass_engine::FileId;
use underpass_engine::wait::{lock, unpoison};

/// The connections that hold uploads.
#[derive(Debug, Default)]
pub(crate) struct UploadLocks {
    holders: Mutex<HashMap<LockName, LockHolder>>,
    /// The newest of those uploads that hold nothing, but may leave something under the name.
    newest: Mutex<HashMap<LockName, Arc<AtomicBool>>>,
    freed: Condvar,
}

/// A name in a folder, independent of the path that leads there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LockName {
    folder: FileId,
    name: Vec<u8>,
}

#[derive(Debug)]
struct LockHolder {
    connection: OwnedFd,
    is_superseded: Arc<AtomicBool>,
}

/// The right to resume an upload, for as long as it lives.
#[derive(Debug)]
pub(crate) struct UploadLock<'a> {
    locks: &'a UploadLocks,
    key: LockName,
    is_superseded: Arc<AtomicBool>,
}

/// An upload that may leave something under a name, as long as no newer one has begun.
#[derive(Debug)]
pub(crate) struct NewestUpload<'a> {
    locks: &'a UploadLocks,
    key: LockName,
    is_newest: Arc<AtomicBool>,
}

/// The reason why an upload cannot be taken over.
#[derive(Debug)]
pub(crate) enum UploadLockError {
    /// The connection that holds it does not release it.
    Kept,
    /// A needed system call failed.
    Io(io::Error),
}

impl<E: Into<io::Error>> From<E> for UploadLockError {
    fn from(error: E) -> Self {
        Self::Io(error.into())
    }
}

impl UploadLocks {
    /// Takes an upload over from the connection that holds it.
    ///
    /// # Errors
    ///
    /// [`UploadLockError`] if that connection does not release it.
    pub(crate) fn acquire(
        &self,
        folder: impl AsFd,
        name: &[u8],
        connection: impl AsFd,
    ) -> Result<UploadLock<'_>, UploadLockError> {
        let key = LockName::new(folder, name)?;
        let connection = connection.as_fd().try_clone_to_owned()?;
        let deadline = Instant::now() + MAX_WAIT;
        self.supersede(&key, None);
        let mut holders = lock(&self.holders);
        while let Some(holder) = holders.get(&key) {
            holder.is_superseded.store(true, Ordering::Relaxed);
            // This wakes the holder wherever it waits; a connection that cannot be shut down is
            // closed already.
            let _ = shutdown(&holder.connection, Shutdown::Both);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(UploadLockError::Kept);
            }
            holders = unpoison(self.freed.wait_timeout(holders, left)).0;
        }
        Ok(self.insert(holders, key, connection))
    }

    /// Begins an upload that may leave something under the name, and is the newest one now.
    ///
    /// # Errors
    ///
    /// As fstat(2).
    pub(crate) fn begin(&self, folder: impl AsFd, name: &[u8]) -> Result<NewestUpload<'_>, Errno> {
        let key = LockName::new(folder, name)?;
        let is_newest = Arc::new(AtomicBool::new(true));
        self.supersede(&key, Some(&is_newest));
        Ok(NewestUpload { locks: self, key, is_newest })
    }

    /// Notes that another upload is the newest one of a name; `None` for one that holds the name.
    fn supersede(&self, key: &LockName, by: Option<&Arc<AtomicBool>>) {
        let mut newest = lock(&self.newest);
        let older = match by {
            Some(by) => newest.insert(key.clone(), Arc::clone(by)),
            None => newest.remove(key),
        };
        older.inspect(|older| older.store(false, Ordering::Relaxed));
    }

    /// Takes an upload that no connection holds.
    pub(crate) fn try_acquire(
        &self,
        folder: impl AsFd,
        name: &[u8],
        connection: impl AsFd,
    ) -> Option<UploadLock<'_>> {
        let key = LockName::new(folder, name).ok()?;
        let connection = connection.as_fd().try_clone_to_owned().ok()?;
        let holders = lock(&self.holders);
        (!holders.contains_key(&key)).then(|| self.insert(holders, key, connection))
    }

    /// Returns whether a connection holds it right now.
    pub(crate) fn is_held(&self, folder: impl AsFd, name: &[u8]) -> bool {
        LockName::new(folder, name).is_ok_and(|key| lock(&self.holders).contains_key(&key))
    }

    fn insert(
        &self,
        mut holders: MutexGuard<'_, HashMap<LockName, LockHolder>>,
        key: LockName,
        connection: OwnedFd,
    ) -> UploadLock<'_> {
        let is_superseded = Arc::new(AtomicBool::new(false));
        let holder = LockHolder { connection, is_superseded: Arc::clone(&is_superseded) };
        holders.insert(key.clone(), holder);
        UploadLock { locks: self, key, is_superseded }
    }
}

impl UploadLock<'_> {
    /// Returns a flag that becomes true when another connection wants to resume the upload.
    pub(crate) fn superseded(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_superseded)
    }
}

impl NewestUpload<'_> {
    /// Returns whether no newer one has begun.
    pub(crate) fn is_newest(&self) -> bool {
        self.is_newest.load(Ordering::Relaxed)
    }
}

impl Drop for NewestUpload<'_> {
    fn drop(&mut self) {
        let mut newest = lock(&self.locks.newest);
        if self.is_newest() {
            newest.remove(&self.key);
        }
    }
}

impl Drop for UploadLock<'_> {
    fn drop(&mut self) {
        lock(&self.locks.holders).remove(&self.key);
        self.locks.freed.notify_all();
    }
}

impl LockName {
    fn new(folder: impl AsFd, name: &[u8]) -> Result<Self, Errno> {
        Ok(Self { folder: FileId::of(&fstat(folder)?), name: name.to_vec() })
    }
}

/// The time that a connection may take that is about to give a file its name, until it is on the
/// disk.
const MAX_WAIT: Duration = Duration::from_secs(20);
