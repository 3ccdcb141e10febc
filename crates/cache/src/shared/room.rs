//! Reserves disk space for fills as their bytes arrive, evicting other objects if necessary.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{CacheState, Counters};
use crate::error::{CacheError, CacheErrorKind};
use crate::store::{EXTENT, QuotaExceeded, Room, StoredUnit, is_divided, is_shortage};
use crate::version::{Eviction, ObjectVersion};

impl CacheState {
    /// Reserves room for the bytes of a fill, whose end is `u64::MAX` if it is unknown. It begins
    /// with one extent; [`claim`](Self::claim) makes room for more, and [`grow`](Self::grow) if the
    /// length is unknown. Nothing is evicted for a body that is not stored.
    pub(crate) fn room_for(&self, fill: &Range<u64>, is_stored: bool) -> Result<Room, CacheError> {
        let disk = self.folder.objects();
        let bytes = if fill.end == u64::MAX { 0 } else { fill.end - fill.start };
        if !is_stored {
            let mut room = Room::default();
            self.grow(&mut room, bytes, false)?;
            return Ok(room);
        }
        let mut room = self.quota.promise(bytes, &disk).ok_or(CacheErrorKind::NoRoom)?;
        room.until = fill.end.min(extent_end(fill.start));
        let first = bytes.min(room.until - fill.start);
        match self.reserve(first) {
            Ok(()) => {
                self.quota.redeem(&mut room, first);
                Ok(room)
            }
            Err(error) => {
                self.quota.release(&room, &[]);
                Err(error)
            }
        }
    }

    /// Makes room for these promised bytes of a fill.
    pub(crate) fn claim(&self, room: &mut Room, bytes: &Range<u64>) -> Result<(), CacheError> {
        let due = bytes.end.saturating_sub(room.until.max(bytes.start)).min(room.promised);
        if due > 0 {
            self.reserve(due)?;
            self.quota.redeem(room, due);
        }
        room.until = room.until.max(bytes.end);
        Ok(())
    }

    /// Makes room for more bytes of a body of unknown length.
    pub(crate) fn grow(
        &self,
        room: &mut Room,
        bytes: u64,
        is_stored: bool,
    ) -> Result<(), CacheError> {
        if is_stored {
            self.reserve(bytes)?;
            room.reserved += bytes;
        } else if !self.quota.pass(room, bytes, &self.folder.objects()) {
            return Err(self.no_room().into());
        }
        Ok(())
    }

    /// Returns why there is no room for a fill.
    fn no_room(&self) -> CacheErrorKind {
        if self.quota.is_read_only() { CacheErrorKind::Disk } else { CacheErrorKind::NoRoom }
    }

    /// Reserves space for a fill, evicting other objects if necessary.
    fn reserve(&self, bytes: u64) -> Result<(), CacheError> {
        for _ in 0..MAX_REMOVED_AT_ONCE {
            let is_pinned = |unit: &StoredUnit| self.is_pinned(unit);
            match self.quota.try_reserve(bytes, &self.folder.objects(), is_pinned) {
                Ok(()) => return Ok(()),
                Err(QuotaExceeded::Permanently) => return Err(self.no_room().into()),
                Err(QuotaExceeded::Evict(unit)) => {
                    self.evict_one(&unit).map_err(|_| CacheErrorKind::NoRoom)?;
                }
            }
        }
        Err(CacheErrorKind::NoRoom.into())
    }

    /// Evicts objects that exceed the quota: it may be smaller than that of an earlier process, and
    /// other programs may have filled the disk.
    pub(crate) fn shrink(&self) {
        // If nothing can be evicted now, the next call tries again.
        let _ = self.reserve(0);
    }

    /// Evicts objects of at least this many bytes together, because the disk is fuller than
    /// expected. Returns whether there were any.
    pub(crate) fn evict(&self, bytes: u64) -> bool {
        let (before, mut left) = (self.quota.usage().bytes, 0);
        for _ in 0..MAX_REMOVED_AT_ONCE {
            left = self.quota.usage().bytes;
            if before.saturating_sub(left) >= bytes {
                break;
            }
            let Some(unit) = self.quota.next(|unit| self.is_pinned(unit)) else { break };
            if self.evict_one(&unit).is_err() {
                break;
            }
        }
        left < before
    }

    /// Evicts an object, or an extent of a large one. An object that is not in memory is evicted as
    /// a whole.
    ///
    /// # Errors
    ///
    /// If the disk has become read-only: its objects are still served. If there are too many open
    /// files to remove it.
    fn evict_one(&self, unit: &StoredUnit) -> io::Result<()> {
        let current = self.current(&unit.digest).filter(|current| is_divided(current.len()));
        let evicted = current.as_ref().map(|current| current.evict(&unit.range(current.len())));
        let was_there = match evicted {
            // A reader has arrived meanwhile.
            Some(Ok(Eviction::Pinned)) => return Ok(()),
            Some(Ok(Eviction::Removed)) => self.quota.removed_unit(unit) > 0,
            Some(Err(_)) => self.evict_whole(unit, current.as_ref())?,
            Some(Ok(Eviction::Useless)) | None => self.evict_whole(unit, None)?,
        };
        // Two fills that need room may choose the same unit.
        Counters::add(&self.counters.evicted, u64::from(was_there));
        Ok(())
    }

    /// Removes the object of a unit; returns whether there was one. An object that is in use stays,
    /// unless it is the version `unpunched`, whose extent could not be removed.
    fn evict_whole(
        &self,
        unit: &StoredUnit,
        unpunched: Option<&Arc<ObjectVersion>>,
    ) -> io::Result<bool> {
        let object = self.objects.get(&unit.digest);
        // Another thread may be about to recreate or open its files.
        let _files = object.as_ref().map(|object| object.lock_files());
        let current = object.as_ref().and_then(|object| object.current());
        let has_come = |current: &Arc<ObjectVersion>| {
            current.is_stored()
                && current.is_busy()
                && !unpunched.is_some_and(|it| Arc::ptr_eq(it, current))
        };
        if current.as_ref().is_some_and(has_come) {
            return Ok(false);
        }
        match self.folder.evict(&unit.digest) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                self.note_stored(Err(&error));
                Err(error)
            }
            Err(error) if is_shortage(&error) => Err(error),
            _ => Ok(self.remove_locked(&unit.digest, object.as_deref()).unwrap_or(false)),
        }
    }

    /// Returns whether a unit is being filled or read, so that removing it would free no space now.
    fn is_pinned(&self, unit: &StoredUnit) -> bool {
        let current = self.current(&unit.digest);
        current.is_some_and(|current| current.is_pinned(&unit.range(current.len())))
    }
}

/// Returns whether an error means that a disk, or a quota of its users, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the end of the extent that contains this byte.
pub(crate) fn extent_end(at: u64) -> u64 {
    (at / EXTENT + 1) * EXTENT
}

/// The maximum number of objects that are evicted for one fill.
const MAX_REMOVED_AT_ONCE: usize = 100_000;
