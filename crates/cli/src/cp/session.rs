//! What was written since the machine was started, and since the file system was mounted.
//!
//! Until then the page cache has every byte, even if the process that wrote it was killed. After a power cut,
//! and after a disk was taken out, a file can have its size and time and not its bytes. A session names
//! one run of the machine and one mount; it is written to the marker of an unfinished folder, and to an
//! attribute of a part of a large file.

use std::ffi::CStr;
use std::fs;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags, XattrFlags, fgetxattr, fremovexattr, fsetxattr, statx};

/// Reads the id of this run of the machine; `None` if there is none.
pub(super) fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Returns the session of what is written to this file or folder now.
pub(super) fn of(boot: &str, file: impl AsFd) -> String {
    // Linux 6.8: a number that no other mount ever gets. The older ones are given away again.
    let unique = StatxFlags::from_bits_retain(0x4000);
    let mount = statx(file, c"", AtFlags::EMPTY_PATH, unique)
        .ok()
        .filter(|known| known.stx_mask & unique.bits() != 0)
        .map_or(0, |known| known.stx_mnt_id);
    format!("boot {boot} mount {mount}\n")
}

/// Checks whether the part of a file was written in this session alone.
pub(super) fn is_of(file: impl AsFd, session: &str) -> bool {
    let mut value = [0; MAX_LEN];
    let len = fgetxattr(file, ATTRIBUTE, &mut value[..]).unwrap_or(0);
    value[..len] == *session.as_bytes()
}

/// Notes that the part of a file was written in this session. Where that cannot be noted, the part is
/// compared with its original before a later run goes on with it.
pub(super) fn note(file: impl AsFd, session: &str) {
    let _ = fsetxattr(file, ATTRIBUTE, session.as_bytes(), XattrFlags::empty());
}

/// Removes the note, if there is one: a whole file does not have it.
pub(super) fn forget(file: impl AsFd) {
    let _ = fremovexattr(file, ATTRIBUTE);
}

const ATTRIBUTE: &CStr = c"user.underpass.written";

/// No session is longer.
pub(super) const MAX_LEN: usize = 128;
