//! One run of the machine and one mount: what was written in it is in the page cache.
//!
//! Until the machine is started again or the file system is unmounted, the page cache has every byte that
//! was written, even if the process that wrote it was killed. After a power cut, and after a disk was
//! taken out, a file can have its size and time and not its bytes. Programs that go on with their work
//! write the session down and compare it later.

use std::fs;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags, statx};

/// Reads the id of this run of the machine; `None` if there is none.
#[must_use]
pub fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Returns the session of what is written to this file or folder now: one line of at most
/// [`MAX_LEN`] bytes.
#[must_use]
pub fn of(boot: &str, file: impl AsFd) -> String {
    // Linux 6.8: a number that no other mount ever gets. The older ones are given away again.
    let unique = StatxFlags::from_bits_retain(0x4000);
    let mount = statx(file, c"", AtFlags::EMPTY_PATH, unique)
        .ok()
        .filter(|known| known.stx_mask & unique.bits() != 0)
        .map_or(0, |known| known.stx_mnt_id);
    format!("boot {boot} mount {mount}\n")
}

/// No session is longer, in bytes.
pub const MAX_LEN: usize = 128;
