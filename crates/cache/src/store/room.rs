//! The room for objects: what is used, what is reserved for fills, and what may be removed.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::fstatvfs;

use super::queue::Queue;
use crate::key::Digest;
use crate::options::KeepFree;

/// The room of one cache.
#[derive(Debug)]
pub(crate) struct Room {
    limit: Option<u64>,
    keep_free: KeepFree,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    /// The bytes that running fills will still write.
    reserved: u64,
    /// When the disk has failed lately.
    failed: Vec<Instant>,
}

/// Why there is no room yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// This object is to be removed first.
    Remove(Digest),
    /// Nothing can be removed.
    ForGood,
}

impl Room {
    pub(crate) fn new(limit: Option<u64>, keep_free: KeepFree) -> Self {
        Self { limit, keep_free, state: Mutex::default() }
    }

    /// Reserves room for bytes that a fill is going to write.
    pub(crate) fn try_reserve(
        &self,
        bytes: u64,
        disk: &OwnedFd,
        is_pinned: impl Fn(&Digest) -> bool,
    ) -> Result<(), Full> {
        let mut state = self.lock();
        if state.is_read_only() {
            return Err(Full::ForGood);
        }
        let is_within = self.limit.is_none_or(|limit| {
            state.queue.bytes().saturating_add(state.reserved).saturating_add(bytes) <= limit
        });
        if is_within && self.has_free(disk, state.reserved.saturating_add(bytes)) {
            state.reserved += bytes;
            return Ok(());
        }
        if self.limit.is_some_and(|limit| bytes > limit) {
            return Err(Full::ForGood);
        }
        Err(state.queue.next(is_pinned).map_or(Full::ForGood, Full::Remove))
    }

    /// Notes that the disk has failed to read what it had.
    pub(crate) fn damaged(&self) {
        let mut state = self.lock();
        state.failed.retain(|failed| failed.elapsed() < FAILURE_TIME);
        if state.failed.len() < MAX_FAILURES {
            state.failed.push(Instant::now());
        }
    }

    /// Returns whether the disk has failed so often that nothing is stored on it.
    pub(crate) fn is_read_only(&self) -> bool {
        self.lock().is_read_only()
    }

    /// Returns the object to remove next.
    pub(crate) fn next(&self, is_pinned: impl Fn(&Digest) -> bool) -> Option<Digest> {
        self.lock().queue.next(is_pinned)
    }

    /// Returns whether the file system has this many bytes above what is to be left free.
    fn has_free(&self, disk: &OwnedFd, bytes: u64) -> bool {
        let Ok(found) = fstatvfs(disk) else { return true };
        let (free, all) = (found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize);
        let kept = match self.keep_free {
            KeepFree::Bytes(bytes) => bytes,
            KeepFree::Percent(percent) => all / 100 * u64::from(percent),
        };
        // Some file systems say nothing of their size.
        all == 0 || free >= kept.saturating_add(bytes)
    }

    /// Takes bytes out of a reservation: those that were written to an object that is kept, and
    /// those that will not be written.
    pub(crate) fn settle(&self, digest: Option<&Digest>, written: u64, unwritten: u64) {
        let mut state = self.lock();
        state.reserved = state.reserved.saturating_sub(written + unwritten);
        if let Some(digest) = digest {
            state.queue.add(digest, written);
        }
    }

    /// Notes an object that an earlier process has stored, unless it is known.
    pub(crate) fn found(&self, digest: &Digest, bytes: u64) {
        let mut state = self.lock();
        if !state.queue.has(digest) {
            state.queue.add(digest, bytes);
        }
    }

    /// Notes that an object was used.
    pub(crate) fn touch(&self, digest: &Digest) {
        self.lock().queue.touch(digest);
    }

    /// Forgets an object that was removed; returns its bytes.
    pub(crate) fn removed(&self, digest: &Digest) -> u64 {
        self.lock().queue.remove(digest)
    }

    /// Returns the bytes and the number of objects, and the bytes that are reserved.
    pub(crate) fn usage(&self) -> (u64, u64, u64) {
        let state = self.lock();
        (state.queue.bytes(), state.queue.len() as u64, state.reserved)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_read_only(&self) -> bool {
        let failed = self.failed.iter().filter(|failed| failed.elapsed() < FAILURE_TIME);
        failed.count() >= MAX_FAILURES
    }
}

/// The number of failures of the disk within [`FAILURE_TIME`] after which nothing is stored.
const MAX_FAILURES: usize = 3;

/// How long a failure of the disk counts.
const FAILURE_TIME: Duration = Duration::from_secs(3600);
