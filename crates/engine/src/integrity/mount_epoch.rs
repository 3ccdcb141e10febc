//! An identifier of one boot and one mount, within which written bytes stay in the page cache.
//!
//! Until the machine is restarted or the file system unmounted, the page cache has every byte that
//! was written, even if the writing process was killed. After a power cut, or after a disk was
//! removed, a file can have its size and time but not its bytes. Programs that resume their work
//! record the mount epoch and compare it later. They also sync what they find: the kernel drops
//! bytes that it could not write back, and reports that once, to the next fsync(2).

use std::fs;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags, statx};

/// Reads the id of this boot; `None` if there is none.
#[must_use]
pub fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Returns the mount epoch of bytes written to this file or folder now: one line of at most
/// [`MAX_LEN`] bytes.
#[must_use]
pub fn of(boot: &str, file: impl AsFd) -> String {
    // Linux 6.8 added mount IDs that are never reused. Older ones are.
    let unique = StatxFlags::from_bits_retain(0x4000);
    let mount = statx(file, c"", AtFlags::EMPTY_PATH, unique)
        .ok()
        .filter(|known| known.stx_mask & unique.bits() != 0)
        .map_or(0, |known| known.stx_mnt_id);
    format!("boot {boot} mount {mount}\n")
}

/// Returns the current mount epoch of this file or folder, without a newline; `None` if the machine
/// has no boot ID.
#[must_use]
pub fn current(file: impl AsFd) -> Option<String> {
    Some(of(&boot_id()?, file).trim_end().to_owned())
}

/// The length of the longest mount epoch, in bytes.
pub const MAX_LEN: usize = 128;
