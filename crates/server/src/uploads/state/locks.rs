//! Locks uploads, so that only one connection at a time resumes each: the newest one, because a
//! client that tries again knows that its last attempt is lost, long before the server does
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
    /// For each name, the newest upload that does not hold it, but may leave a part under it.
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
    receiver: Arc<PartReceiver>,
    is_void: Arc<AtomicBool>,
}

/// The connection whose client sends a part.
#[derive(Debug)]
pub(crate) struct PartReceiver {
    /// `None` once the client is no longer waited for.
    connection: Mutex<Option<OwnedFd>>,
    is_superseded: AtomicBool,
}

/// The right to resume an upload, for as long as it lives.
#[derive(Debug)]
pub(crate) struct UploadLock<'a> {
    locks: &'a UploadLocks,
    key: LockName,
    receiver: Arc<PartReceiver>,
    is_void: Arc<AtomicBool>,
}

/// An upload that may leave a part under a name, as long as no newer one has begun.
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
            // This wakes the holder if it waits for its client.
            holder.receiver.supersede(Shutdown::Both);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(UploadLockError::Kept);
            }
            holders = unpoison(self.freed.wait_timeout(holders, left)).0;
        }
        Ok(self.insert(holders, key, connection))
    }

    /// Begins an upload that may leave a part under the name, as the newest one. A part that
    /// another connection holds becomes void.
    ///
    /// # Errors
    ///
    /// As fstat(2).
    pub(crate) fn begin(&self, folder: impl AsFd, name: &[u8]) -> Result<NewestUpload<'_>, Errno> {
        let key = LockName::new(folder, name)?;
        let is_newest = Arc::new(AtomicBool::new(true));
        let is_first = !self.supersede(&key, Some(&is_newest));
        if let Some(holder) = lock(&self.holders).get(&key) {
            holder.is_void.store(true, Ordering::Relaxed);
            // Its response can still be sent.
            holder.receiver.supersede(Shutdown::Read);
        }
        if !is_first {
            // The older one may wait for the name.
            self.freed.notify_all();
        }
        Ok(NewestUpload { locks: self, key, is_newest })
    }

    /// Replaces the newest upload of a name; `None` if the new one holds the name. Returns whether
    /// there was one before.
    fn supersede(&self, key: &LockName, by: Option<&Arc<AtomicBool>>) -> bool {
        let mut newest = lock(&self.newest);
        let older = match by {
            Some(by) => newest.insert(key.clone(), Arc::clone(by)),
            None => newest.remove(key),
        };
        older.inspect(|older| older.store(false, Ordering::Relaxed)).is_some()
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
        let receiver = Arc::new(PartReceiver {
            connection: Mutex::new(Some(connection)),
            is_superseded: AtomicBool::new(false),
        });
        let is_void = Arc::new(AtomicBool::new(false));
        let holder = LockHolder { receiver: Arc::clone(&receiver), is_void: Arc::clone(&is_void) };
        holders.insert(key.clone(), holder);
        UploadLock { locks: self, key, receiver, is_void }
    }
}

impl PartReceiver {
    /// Ends the transfer, if the client is still waited for. A connection that cannot be shut down
    /// is closed already.
    fn supersede(&self, how: Shutdown) {
        let connection = lock(&self.connection);
        self.is_superseded.store(true, Ordering::Relaxed);
        let _ = connection.as_ref().map(|connection| shutdown(connection, how));
    }

    /// Returns whether another connection has resumed the upload, or begun it anew.
    pub(crate) fn is_superseded(&self) -> bool {
        self.is_superseded.load(Ordering::Relaxed)
    }

    /// Keeps the connection from being shut down from now on, because the transfer is over; returns
    /// false if it was shut down before, so that no further request can be read from it.
    pub(crate) fn keep_connection(&self) -> bool {
        let mut connection = lock(&self.connection);
        *connection = None;
        !self.is_superseded()
    }
}

impl UploadLock<'_> {
    /// Returns the connection that sends the part.
    pub(crate) fn receiver(&self) -> Arc<PartReceiver> {
        Arc::clone(&self.receiver)
    }

    /// Returns whether a newer upload of the name has begun: nothing of this one may remain.
    pub(crate) fn is_void(&self) -> bool {
        self.is_void.load(Ordering::Relaxed)
    }
}

impl<'a> NewestUpload<'a> {
    /// Takes the name once the connection that holds it has released it; `None` if a newer upload
    /// has begun, or if that connection does not release it.
    pub(crate) fn acquire(&self, connection: impl AsFd) -> Option<UploadLock<'a>> {
        let connection = connection.as_fd().try_clone_to_owned().ok()?;
        let deadline = Instant::now() + MAX_WAIT;
        let mut holders = lock(&self.locks.holders);
        while self.is_newest() && holders.contains_key(&self.key) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            holders = unpoison(self.locks.freed.wait_timeout(holders, left)).0;
        }
        self.is_newest().then(|| self.locks.insert(holders, self.key.clone(), connection))
    }

    /// Returns the name under which it may leave a part.
    pub(crate) fn name(&self) -> &[u8] {
        &self.key.name
    }

    fn is_newest(&self) -> bool {
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

/// The maximum wait for a connection that is about to give a file its name, which may have to be
/// synced to the disk.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_newer_upload_voids_what_an_older_one_holds() {
        let (locks, folder) = (UploadLocks::default(), std::fs::File::open("/").unwrap());
        let older = locks.begin(&folder, b"part").unwrap();
        let held = older.acquire(&folder).unwrap();
        assert!(!held.is_void());
        let newer = locks.begin(&folder, b"part").unwrap();
        assert!(held.is_void());
        assert!(older.acquire(&folder).is_none());
        thread::scope(|scope| {
            let taken = scope.spawn(|| newer.acquire(&folder).map(|lock| lock.is_void()));
            drop(held);
            assert_eq!(taken.join().unwrap(), Some(false));
        });
        // One that is resumed is not void.
        let held = newer.acquire(&folder).unwrap();
        thread::scope(|scope| {
            let resumed = scope.spawn(|| locks.acquire(&folder, b"part", &folder).is_ok());
            while !held.receiver().is_superseded() {
                thread::yield_now();
            }
            assert!(!held.is_void());
            drop(held);
            assert!(resumed.join().unwrap());
        });
        assert!(newer.acquire(&folder).is_none());
    }

    #[test]
    fn a_client_that_has_sent_everything_keeps_its_connection() {
        use std::io::Read;
        use std::os::unix::net::UnixStream;

        let (locks, folder) = (UploadLocks::default(), std::fs::File::open("/").unwrap());
        let end = |is_waited_for: bool, how: fn(&UploadLocks, &std::fs::File)| {
            let (client, mut server) = UnixStream::pair().unwrap();
            server.set_nonblocking(true).unwrap();
            let held = locks.acquire(&folder, b"part", &server).unwrap();
            assert!(is_waited_for || held.receiver().keep_connection());
            thread::scope(|scope| {
                let newer = scope.spawn(|| how(&locks, &folder));
                while !held.receiver().is_superseded() {
                    thread::yield_now();
                }
                let is_kept = server.read(&mut [0]).is_err();
                assert_eq!((is_kept, held.receiver().keep_connection()), (!is_waited_for, false));
                drop(held);
                newer.join().unwrap();
            });
            drop(client);
        };
        let begin: fn(&UploadLocks, &std::fs::File) =
            |locks, folder| drop(locks.begin(folder, b"part").unwrap());
        let resume: fn(&UploadLocks, &std::fs::File) =
            |locks, folder| drop(locks.acquire(folder, b"part", folder).unwrap());
        for how in [begin, resume] {
            end(true, how);
            end(false, how);
        }
    }
}
