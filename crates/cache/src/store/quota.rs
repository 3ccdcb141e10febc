//! The disk quota: the space in use, the space reserved for fills, and the next unit to evict.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{StatVfs, fstatvfs};
use underpass_engine::MinFree;
use underpass_engine::wait::lock;

use super::eviction_queue::EvictionQueue;
use super::unit::StoredUnit;
use crate::key::KeyDigest;

/// The disk space of one cache.
#[derive(Debug)]
pub(crate) struct DiskQuota {
    limit: Option<u64>,
    min_free: MinFree,
    state: Mutex<QuotaState>,
    /// The bytes of bodies that are not stored but are still being read. They are released without
    /// the lock, because the last owner of such a body may hold the lock of its object.
    held: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct QuotaState {
    queue: EvictionQueue,
    /// The bytes for which running fills have room.
    reserved: u64,
    /// The further bytes that they may write, for which room is made later.
    promised: u64,
    /// The bytes of running bodies that are not stored. The limit applies to all of these together,
    /// and they do not count otherwise.
    passing: u64,
    /// The bytes of all these that were written, which the file system no longer counts as free.
    written: u64,
    /// The times of recent disk failures.
    failed: Vec<Instant>,
}

/// The space that a file system lacks.
#[derive(Debug, PartialEq, Eq)]
struct MissingSpace {
    bytes: u64,
    files: u64,
}

/// The room of a fill.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// The bytes for which there is room.
    pub(crate) reserved: u64,
    /// The further bytes that may arrive.
    pub(crate) promised: u64,
    /// The bytes of a body that is not stored.
    passing: u64,
    /// The written bytes of all these.
    written: u64,
    /// The offset up to which there is room.
    pub(crate) until: u64,
}

/// The room of a body that is not stored, which is released when nothing uses the body any more.
#[derive(Debug)]
pub(crate) struct HeldRoom {
    held: Arc<AtomicU64>,
    bytes: u64,
}

impl HeldRoom {
    pub(crate) fn new(quota: &DiskQuota, bytes: u64) -> Self {
        quota.held.fetch_add(bytes, Ordering::Relaxed);
        Self { held: Arc::clone(&quota.held), bytes }
    }
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The reason why space cannot be reserved.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum QuotaExceeded {
    /// This object or extent must be evicted first.
    Evict(StoredUnit),
    /// Nothing can be evicted.
    Permanently,
}

impl DiskQuota {
    pub(crate) fn new(limit: Option<u64>, min_free: MinFree) -> Self {
        Self { limit, min_free, state: Mutex::default(), held: Arc::default() }
    }

    /// Reserves space for bytes that a fill is going to write.
    pub(crate) fn try_reserve(
        &self,
        bytes: u64,
        disk: &OwnedFd,
        is_pinned: impl Fn(&StoredUnit) -> bool,
    ) -> Result<(), QuotaExceeded> {
        let mut state = lock(&self.state);
        if state.is_read_only() {
            return Err(QuotaExceeded::Permanently);
        }
        let (objects, used) = (state.queue.len() as u64, state.used());
        let is_within = objects < MAX_OBJECTS
            && self.limit.is_none_or(|limit| {
                used.saturating_add(state.reserved).saturating_add(bytes) <= limit
            });
        let missing = self.missing(disk, state.unwritten(0).saturating_add(bytes));
        if is_within && missing == (MissingSpace { bytes: 0, files: 0 }) {
            state.reserved += bytes;
            return Ok(());
        }
        // If other programs have filled the disk, even evicting all objects would not suffice.
        let is_hopeless = missing.bytes > used || missing.files > objects * FILES_PER_OBJECT;
        if is_hopeless || self.limit.is_some_and(|limit| bytes > limit) {
            return Err(QuotaExceeded::Permanently);
        }
        Err(state.queue.next(is_pinned).map_or(QuotaExceeded::Permanently, QuotaExceeded::Evict))
    }

    /// Promises a fill room for this many bytes, which is made as they arrive; `None` if there
    /// cannot be enough in addition to that of other fills, whatever is evicted.
    pub(crate) fn promise(&self, bytes: u64, disk: &OwnedFd) -> Option<Room> {
        let mut state = lock(&self.state);
        let due = (state.reserved + state.promised).saturating_add(bytes);
        let missing = self.missing(disk, state.unwritten(state.promised).saturating_add(bytes));
        if missing.bytes > state.used() || self.limit.is_some_and(|limit| due > limit) {
            return None;
        }
        state.promised += bytes;
        Some(Room { promised: bytes, ..Room::default() })
    }

    /// Records that room was made for some of the promised bytes.
    pub(crate) fn redeem(&self, room: &mut Room, bytes: u64) {
        let mut state = lock(&self.state);
        state.promised = state.promised.saturating_sub(bytes);
        room.promised -= bytes;
        room.reserved += bytes;
    }

    /// Gives more room to a body that is not stored; returns `false` if objects would have to be
    /// evicted for it.
    pub(crate) fn pass(&self, room: &mut Room, bytes: u64, disk: &OwnedFd) -> bool {
        let mut state = lock(&self.state);
        let due = state.unwritten(state.promised);
        let unstored = (state.passing + self.held()).saturating_add(bytes);
        if self.limit.is_some_and(|limit| unstored > limit)
            || state.is_read_only()
            || self.missing(disk, due.saturating_add(bytes)).bytes > 0
        {
            return false;
        }
        state.passing += bytes;
        room.passing += bytes;
        true
    }

    /// Counts the bytes of a file that has no name any more, but may still be requested; `None` if
    /// all bodies that are not stored would exceed the limit, or the disk has too little space left.
    pub(crate) fn keep_unnamed(&self, bytes: u64, disk: &OwnedFd) -> Option<HeldRoom> {
        let state = lock(&self.state);
        let unstored = (state.passing + self.held()).saturating_add(bytes);
        let is_beyond = self.limit.is_some_and(|limit| unstored > limit);
        // The bytes are on the disk already.
        let lacks_space = self.missing(disk, state.unwritten(0)).bytes > 0;
        (!is_beyond && !lacks_space).then(|| HeldRoom::new(self, bytes))
    }

    /// Returns whether the disk has less free space than must be left.
    pub(crate) fn lacks_space(&self, disk: &OwnedFd) -> bool {
        let due = lock(&self.state).unwritten(0);
        self.missing(disk, due).bytes > 0
    }

    /// Records that a fill has written some of the bytes for which it has room.
    pub(crate) fn wrote(&self, room: &mut Room, bytes: u64) {
        let bytes = bytes.min((room.reserved + room.passing).saturating_sub(room.written));
        room.written += bytes;
        lock(&self.state).written += bytes;
    }

    /// Records that the disk has failed to read a file.
    pub(crate) fn mark_damaged(&self) {
        let mut state = lock(&self.state);
        state.failed.retain(|failed| failed.elapsed() < FAILURE_TIME);
        if state.failed.len() < MAX_FAILURES {
            state.failed.push(Instant::now());
        }
    }

    /// Returns whether nothing is stored, because the disk has failed repeatedly.
    pub(crate) fn is_read_only(&self) -> bool {
        lock(&self.state).is_read_only()
    }

    /// Returns the object or extent to evict next.
    pub(crate) fn next(&self, is_pinned: impl Fn(&StoredUnit) -> bool) -> Option<StoredUnit> {
        lock(&self.state).queue.next(is_pinned)
    }

    /// Returns what the file system lacks to store this many bytes beyond the minimum free space.
    fn missing(&self, disk: &OwnedFd, bytes: u64) -> MissingSpace {
        let Ok(found) = fstatvfs(disk) else { return MissingSpace { bytes: 0, files: 0 } };
        let missing = |(free, kept): (u64, u64)| kept.saturating_add(bytes).saturating_sub(free);
        let bytes = self.free_bytes(&found).map_or(0, missing);
        let kept_files = match self.min_free {
            MinFree::Bytes(_) => 0,
            share => share.of(found.f_files),
        };
        let files = match found.f_files {
            // Some file systems have no fixed number of inodes.
            0 => 0,
            _ => kept_files.saturating_sub(found.f_favail),
        };
        MissingSpace { bytes, files }
    }

    /// Returns the free bytes of a file system, and how many of them must be kept free; `None` if
    /// it does not report its size.
    fn free_bytes(&self, found: &StatVfs) -> Option<(u64, u64)> {
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        let (free, all) = (bytes(found.f_bavail), bytes(found.f_blocks));
        (all > 0).then_some((free, self.min_free.of(all)))
    }

    /// Releases the room of a fill, and adds the written bytes to units of stored objects.
    pub(crate) fn release(&self, room: &Room, written: &[(StoredUnit, u64)]) {
        let mut state = lock(&self.state);
        state.reserved = state.reserved.saturating_sub(room.reserved);
        state.promised = state.promised.saturating_sub(room.promised);
        state.passing = state.passing.saturating_sub(room.passing);
        state.written = state.written.saturating_sub(room.written);
        written.iter().for_each(|(unit, bytes)| state.queue.add(unit, *bytes));
    }

    /// Adds an object that an earlier process has stored, unless it was added already.
    pub(crate) fn add_existing(&self, digest: &KeyDigest, units: &[(StoredUnit, u64)]) {
        let mut state = lock(&self.state);
        if !state.queue.has(digest) {
            units.iter().for_each(|(unit, bytes)| state.queue.add(unit, *bytes));
        }
    }

    /// Records that a unit was used.
    pub(crate) fn touch(&self, unit: &StoredUnit) {
        lock(&self.state).queue.touch(unit);
    }

    /// Removes a unit from the books; returns its bytes.
    pub(crate) fn removed_unit(&self, unit: &StoredUnit) -> u64 {
        lock(&self.state).queue.remove_unit(unit)
    }

    /// Removes an object from the books; returns its bytes.
    pub(crate) fn removed(&self, digest: &KeyDigest) -> u64 {
        lock(&self.state).queue.remove(digest)
    }

    /// Forgets all objects, because their files were removed. Reservations stay.
    pub(crate) fn forget_all(&self) {
        lock(&self.state).queue = EvictionQueue::default();
    }

    fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the disk space that all objects may use; `None` if nothing limits it.
    pub(crate) fn capacity(&self, disk: &OwnedFd) -> Option<u64> {
        // Bytes that running fills have written are neither free nor counted as used yet.
        let used = {
            let state = lock(&self.state);
            state.used() + state.written
        };
        let free = fstatvfs(disk).ok().and_then(|found| self.free_bytes(&found));
        let free = free.map(|(free, kept)| (used + free).saturating_sub(kept));
        [self.limit, free].into_iter().flatten().min()
    }

    /// Returns what is stored and reserved.
    pub(crate) fn usage(&self) -> QuotaUsage {
        let state = lock(&self.state);
        QuotaUsage {
            bytes: state.queue.bytes(),
            objects: state.queue.objects(),
            reserved: state.reserved + state.promised + state.passing + self.held(),
        }
    }
}

/// The disk usage of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaUsage {
    /// The bytes of all objects.
    pub(crate) bytes: u64,
    /// The number of objects.
    pub(crate) objects: u64,
    /// The bytes that fills have reserved or may still need, and those that are not stored.
    pub(crate) reserved: u64,
}

impl QuotaState {
    /// Returns the space that all objects use.
    fn used(&self) -> u64 {
        self.queue.bytes() + self.queue.len() as u64 * OBJECT_OVERHEAD
    }

    /// Returns what running bodies may still write, including these promised bytes.
    fn unwritten(&self, promised: u64) -> u64 {
        (self.reserved + self.passing + promised).saturating_sub(self.written)
    }

    fn is_read_only(&self) -> bool {
        let failed = self.failed.iter().filter(|failed| failed.elapsed() < FAILURE_TIME);
        failed.count() >= MAX_FAILURES
    }
}

/// The space of an object besides its bytes: its journal's block, and the rest of its last block.
pub(crate) const OBJECT_OVERHEAD: u64 = 8 << 10;

/// The maximum number of inodes that evicting an object frees.
const FILES_PER_OBJECT: u64 = 2;

/// The maximum number of objects, each of which takes some 150 bytes of memory.
const MAX_OBJECTS: u64 = 4 << 20;

/// After this many disk failures within [`FAILURE_TIME`] nothing is stored.
const MAX_FAILURES: usize = 3;

/// The time for which a disk failure counts.
const FAILURE_TIME: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn the_capacity_is_that_of_the_disk_or_of_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let disk = OwnedFd::from(std::fs::File::open(folder.path()).unwrap());
        let free = || {
            let found = fstatvfs(&disk).unwrap();
            found.f_bavail * found.f_frsize
        };
        // Other programs may write meanwhile.
        let is_near = |capacity: Option<u64>, expected: u64| {
            capacity.is_some_and(|capacity| capacity.abs_diff(expected) < 4 << 30)
        };
        let quota = DiskQuota::new(None, MinFree::Bytes(0));
        assert!(is_near(quota.capacity(&disk), free()));
        let unit = StoredUnit::whole(&KeyDigest::default());
        quota.add_existing(&unit.digest, &[(unit, 1 << 40)]);
        assert!(is_near(quota.capacity(&disk), free() + (1 << 40)));
        let mut room = Room { reserved: 1 << 41, ..Room::default() };
        quota.wrote(&mut room, 1 << 41);
        assert!(is_near(quota.capacity(&disk), free() + (1 << 40) + (1 << 41)), "of a fill");
        let quota = DiskQuota::new(Some(7), MinFree::Bytes(0));
        assert_eq!(quota.capacity(&disk), Some(7));
        let quota = DiskQuota::new(None, MinFree::Bytes(u64::MAX));
        assert_eq!(quota.capacity(&disk), Some(0));
    }

    #[test]
    fn a_file_system_without_an_end_has_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut found = fstatvfs(std::fs::File::open(folder.path()).unwrap()).unwrap();
        (found.f_blocks, found.f_bavail, found.f_frsize) = (1 << 60, 1 << 60, 4096);
        let quota = DiskQuota::new(None, MinFree::Bytes(7));
        assert_eq!(quota.free_bytes(&found), Some((u64::MAX, 7)));
    }

    #[test]
    fn the_room_of_a_body_comes_back_while_room_is_made() {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let quota = DiskQuota::new(None, MinFree::Bytes(0));
            let unit = StoredUnit::whole(&KeyDigest::default());
            quota.add_existing(&unit.digest, &[(unit, 1)]);
            let held = Mutex::new(Some(HeldRoom::new(&quota, 7)));
            let reserved = quota.usage().reserved;
            // The thread that makes room may be the last owner of such a version.
            let next = quota.next(|_| {
                drop(lock(&held).take());
                false
            });
            sender.send((reserved, next, quota.usage().reserved)).unwrap();
        });
        let unit = StoredUnit::whole(&KeyDigest::default());
        assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Ok((7, Some(unit), 0)));
    }
}
