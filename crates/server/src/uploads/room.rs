//! Whether there is room for what comes, and how much is left free for others.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rustix::fs::{fstat, fstatvfs, ftruncate};
use underpass_engine::atomic_file::AtomicFile;

use crate::server::settings::MinFree;
use crate::server::shared::Shared;
use crate::uploads::answer::Refusal;
use crate::uploads::place::Place;
use crate::uploads::receive::Reception;

impl Reception<'_> {
    /// Checks that there is room for so many more bytes.
    pub(crate) fn check_room(&self, place: &Place, len: u64) -> Result<(), Refusal> {
        if has_room(self.shared, &place.folder, len) { Ok(()) } else { Err(Refusal::full()) }
    }

    /// Reserves space up to `end`, of which the bytes from `from` on are still to come, for as long
    /// as this connection sends.
    pub(crate) fn reserve(
        &self,
        place: &Place,
        landing: &AtomicFile,
        from: u64,
        end: u64,
    ) -> Result<(), Refusal> {
        let len = end.saturating_sub(from);
        // Nobody else looks between the look and the reservation.
        let _alone = self.shared.uploads.reserving.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_room(place, len)?;
        if self.has_enough(place, len) {
            self.slot.is_unreserved.store(true, Ordering::Relaxed);
            return Ok(());
        }
        landing.reserve(end)?;
        let stat = fstat(landing.file())?;
        #[allow(clippy::useless_conversion)] // types differ by target
        let blocks: u64 = u64::try_from(stat.st_blocks).unwrap_or(0);
        // Where the file system reserves nothing the others have to be told.
        self.slot.claim(stat.st_dev, len, blocks.saturating_mul(512) >= end);
        Ok(())
    }

    /// Whether so many bytes would be more than half of what is free, with what is reserved for the same
    /// owner: one file may take all of it, many of one client may not keep it from others.
    fn has_enough(&self, place: &Place, len: u64) -> bool {
        let (Ok(facts), Ok(stat)) = (fstatvfs(&place.folder), fstat(&place.folder)) else {
            return false;
        };
        let own = self.shared.uploads.slots.claimed_by_owner(self.slot, stat.st_dev);
        let free = facts.f_bavail.saturating_mul(facts.f_frsize).saturating_add(own);
        facts.f_blocks > 0 && own > 0 && own.saturating_add(len) > free / 2
    }
}

/// Whether so many bytes fit, and leave as much free as has to be.
pub(crate) fn has_room(shared: &Shared, folder: impl AsFd, len: u64) -> bool {
    let Ok(facts) = fstatvfs(&folder) else { return true };
    // Some know no limit, or do not tell it.
    if facts.f_blocks == 0 {
        return true;
    }
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    let device = fstat(&folder).map_or(0, |stat| stat.st_dev);
    let promised = shared.uploads.slots.promised(device);
    let kept = match shared.settings.changes.min_free {
        MinFree::Bytes(0) => return len.saturating_add(promised) <= bytes(facts.f_bfree),
        MinFree::Bytes(kept) => kept,
        MinFree::Percent(percent) => bytes(facts.f_blocks) / 100 * u64::from(percent),
    };
    len.saturating_add(promised).saturating_add(kept) <= bytes(facts.f_bavail)
}

/// Gives back the space that was reserved for what has not come.
pub(crate) fn release(file: &File) {
    // What cannot be given back now is when the part is removed.
    let _ = fstat(file).map(|stat| ftruncate(file, u64::try_from(stat.st_size).unwrap_or(0)));
}

/// How many bytes of a body of unknown length come between two looks at the disk.
pub(crate) const LOOK_EVERY: u64 = 1 << 20;
