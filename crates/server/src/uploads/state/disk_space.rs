//! Checks whether there is room for an upload and for the space that must stay free.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{StatVfsMountFlags, fstat, fstatvfs, ftruncate};
use underpass_engine::MinFree;

use crate::server::sites::site::Site;

/// Returns whether this size fits, and leaves the configured space free.
pub(crate) fn has_room(site: &Site, folder: impl AsFd, len: u64) -> bool {
    let Ok(facts) = fstatvfs(&folder) else { return true };
    // Some file systems have no limit, or do not report it. Read-only ones report that later.
    if facts.f_blocks == 0 || facts.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return true;
    }
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    let device = fstat(&folder).map_or(0, |stat| stat.st_dev);
    let promised = site.shared.uploads.slots.promised(device);
    let kept = match site.settings.changes.min_free {
        MinFree::Bytes(0) => return len.saturating_add(promised) <= bytes(facts.f_bfree),
        kept => kept.of(bytes(facts.f_blocks)),
    };
    len.saturating_add(promised).saturating_add(kept) <= bytes(facts.f_bavail)
}

/// Gives back the space reserved for bytes that have not arrived. The caller must have locked the
/// part for this process: bytes that another process adds at the same time would be cut off.
/// (ext4 gives nothing back by punching a hole after the end.)
pub(crate) fn release(file: &File) {
    // If that fails, the space is given back when the part is removed.
    let _ = fstat(file).map(|stat| ftruncate(file, u64::try_from(stat.st_size).unwrap_or(0)));
}

/// The number of bytes between two checks of the disk, for a body of unknown length.
pub(crate) const CHECK_INTERVAL_BYTES: u64 = 1 << 20;
