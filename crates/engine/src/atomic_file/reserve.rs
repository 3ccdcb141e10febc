//! Reserves space on the disk before bytes are written.

use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, fallocate, fstat, fstatfs, fstatvfs};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Reserves space for `len` bytes from `offset` on, without changing the size of the file. It
/// succeeds without effect on a file system that cannot reserve, and on btrfs, which does not
/// compress what is written into reserved space.
///
/// # Errors
///
/// `ENOSPC`, `EDQUOT` or `EFBIG`, as fallocate(2).
pub(crate) fn reserve(file: impl AsFd, offset: u64, len: u64) -> Result<(), Errno> {
    #[allow(clippy::unnecessary_cast)] // the type differs by target
    let is_btrfs = || fstatfs(&file).is_ok_and(|facts| facts.f_type as u32 == BTRFS);
    if len == 0 || is_btrfs() {
        return Ok(());
    }
    let allocate = |len| match fallocate(&file, FallocateFlags::KEEP_SIZE, offset, len) {
        Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(errno),
        allocated => Ok(allocated.is_ok()),
    };
    // ext4 allocates all that is left before it fails: other programs would find the disk full for
    // a moment. A file system that cannot reserve at all may report any free space.
    if len > PROBE && lacks_room(&file, offset, len) && allocate(PROBE)? {
        return Err(Errno::NOSPC);
    }
    allocate(len).map(drop)
}

/// Returns whether the file system lacks the space for a range of a file, minus what is already
/// allocated to the file there.
fn lacks_room(file: impl AsFd, offset: u64, len: u64) -> bool {
    let (Ok(room), Ok(stat)) = (fstatvfs(&file), fstat(&file)) else { return false };
    let own = (u64::try_from(stat.st_blocks).unwrap_or(0) * 512).saturating_sub(offset);
    let free = if geteuid().is_root() { room.f_bfree } else { room.f_bavail };
    // Some file systems do not report their size.
    room.f_blocks > 0 && len.saturating_sub(own) > free.saturating_mul(room.f_frsize)
}

/// The bytes reserved to find out whether the file system can reserve at all.
const PROBE: u64 = 4 << 10;

/// The type of btrfs in statfs(2), as in linux/magic.h.
const BTRFS: u32 = 0x9123_683e;
