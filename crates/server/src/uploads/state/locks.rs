//! Which connection goes on with which upload: only one at a time, and the newest one, for a client
//! that asks again knows that its last attempt is lost, long before the server can
//! (draft-ietf-httpbis-resumable-upload 4.6).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

/// Which connection goes on with which upload.
#[derive(Debug, Default)]
pub(crate) struct UploadLocks {
    holders: Mutex<HashMap<Key, LockHolder>>,
    freed: Condvar,
}

/// A name in a folder, whatever path leads there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    device: u64,
    inode: u64,
    name: Vec<u8>,
}

#[derive(Debug)]
struct LockHolder {
    connection: OwnedFd,
    is_superseded: Arc<AtomicBool>,
}

/// The right to go on with an upload, for as long as it lives.
#[derive(Debug)]
pub(crate) struct UploadLock<'a> {
    locks: &'a UploadLocks,
    key: Key,
    is_superseded: Arc<AtomicBool>,
}

/// Why an upload cannot be taken over.
#[derive(Debug)]
pub(crate) enum LockError {
    /// The connection that has it does not let go of it.
    Kept,
    /// The system refused what is needed for it.
    Io(io::Error),
}

impl<E: Into<io::Error>> From<E> for LockError {
    fn from(error: E) -> Self {
        Self::Io(error.into())
    }
}

impl UploadLocks {
    /// Takes an upload over, from the connection that has it.
    ///
    /// # Errors
    ///
    /// [`LockError`] if that does not let go of it.
    pub(crate) fn take(
        &self,
        folder: impl AsFd,
        name: &[u8],
        connection: impl AsFd,
    ) -> Result<UploadLock<'_>, LockError> {
        let key = Key::new(folder, name)?;
        let connection = connection.as_fd().try_clone_to_owned()?;
        let deadline = Instant::now() + MAX_WAIT;
        let mut holders = self.lock();
        while let Some(holder) = holders.get(&key) {
            holder.is_superseded.store(true, Ordering::Relaxed);
            // Wakes it wherever it waits; a connection that cannot be shut down is closed already.
            let _ = shutdown(&holder.connection, Shutdown::Both);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LockError::Kept);
            }
            holders =
                self.freed.wait_timeout(holders, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(self.insert(holders, key, connection))
    }

    /// Takes an upload that no connection has.
    pub(crate) fn take_free(
        &self,
        folder: impl AsFd,
        name: &[u8],
        connection: impl AsFd,
    ) -> Option<UploadLock<'_>> {
        let key = Key::new(folder, name).ok()?;
        let connection = connection.as_fd().try_clone_to_owned().ok()?;
        let holders = self.lock();
        (!holders.contains_key(&key)).then(|| self.insert(holders, key, connection))
    }

    /// Returns whether a connection goes on with it right now.
    pub(crate) fn is_held(&self, folder: impl AsFd, name: &[u8]) -> bool {
        Key::new(folder, name).is_ok_and(|key| self.lock().contains_key(&key))
    }

    fn insert(
        &self,
        mut holders: MutexGuard<'_, HashMap<Key, LockHolder>>,
        key: Key,
        connection: OwnedFd,
    ) -> UploadLock<'_> {
        let is_superseded = Arc::new(AtomicBool::new(false));
        let holder = LockHolder { connection, is_superseded: Arc::clone(&is_superseded) };
        holders.insert(key.clone(), holder);
        UploadLock { locks: self, key, is_superseded }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, LockHolder>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UploadLock<'_> {
    /// Becomes true when another connection wants to go on.
    pub(crate) fn superseded(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_superseded)
    }
}

impl Drop for UploadLock<'_> {
    fn drop(&mut self) {
        self.locks.lock().remove(&self.key);
        self.locks.freed.notify_all();
    }
}

impl Key {
    fn new(folder: impl AsFd, name: &[u8]) -> Result<Self, Errno> {
        let stat = fstat(folder)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino, name: name.to_vec() })
    }
}

/// How long a connection that is about to give a file its name may take, until it is on the disk.
const MAX_WAIT: Duration = Duration::from_secs(20);
