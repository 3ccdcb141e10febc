//! Whether there is room for what comes, and how much is left free for others.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{fstat, fstatvfs, ftruncate};

use crate::server::settings::MinFree;
use crate::server::shared::Shared;

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
pub(crate) const CHECK_INTERVAL_BYTES: u64 = 1 << 20;
