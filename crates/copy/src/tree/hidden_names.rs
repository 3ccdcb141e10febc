//! Hidden names, which files and folders have until they are whole.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, Stat, StatxFlags, fstat, statx};
use rustix::io::Errno;
use underpass_engine::atomic_file::{fingerprint, hidden_name};

/// Returns the hidden name of what is to become `name`. The same number gives the same name, so
/// that a later run finds what an earlier one has left.
pub(crate) fn hidden(name: &CStr, number: Option<u32>) -> CString {
    let hidden = hidden_name(OsStr::from_bytes(name.to_bytes()), number);
    // A name has no zero byte in it, and none was added.
    CString::new(hidden.into_vec()).unwrap_or_default()
}

/// Calls `make` with hidden names of this process until one is free. Processes that were killed may
/// have had the same number, as those in containers often have.
///
/// # Errors
///
/// Those of `make` but `EEXIST`; `EBUSY` if many names are taken.
pub(crate) fn claim<T>(
    name: &CStr,
    mut make: impl FnMut(&CStr) -> Result<T, Errno>,
) -> Result<(T, CString), Errno> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut number = std::process::id();
    for _ in 0..MAX_ATTEMPTS {
        let hidden = hidden(name, Some(number));
        match make(&hidden) {
            Err(Errno::EXIST) => {}
            made => return made.map(|made| (made, hidden)),
        }
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        number = fingerprint(format!("{}-{next}", std::process::id()).as_bytes()) as u32;
    }
    Err(Errno::BUSY)
}

/// Returns the hidden name of a part of a large file, which only a copy of that very version goes
/// on with: the time of its last change tells of a file that was written in place and got its
/// old time back.
pub(crate) fn partial_name(name: &CStr, stat: &Stat) -> CString {
    let facts = format!(
        "{}:{}:{}:{}.{}:{}.{}",
        stat.st_dev,
        stat.st_ino,
        stat.st_size,
        stat.st_mtime,
        stat.st_mtime_nsec,
        stat.st_ctime,
        stat.st_ctime_nsec
    );
    let number = fingerprint(facts.as_bytes()) as u32;
    hidden(name, Some(number))
}

/// Returns a number by which a later run knows a folder again. An inode number may be used again,
/// but not together with the time of its birth.
pub(crate) fn identity(source: &OwnedFd) -> u32 {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let facts = match statx(source, c"", AtFlags::EMPTY_PATH, wanted) {
        Ok(known) => format!(
            "{}:{}:{}:{}.{}",
            known.stx_dev_major,
            known.stx_dev_minor,
            known.stx_ino,
            known.stx_btime.tv_sec,
            known.stx_btime.tv_nsec
        ),
        // A kernel or a filter without the call.
        Err(_) => fstat(source)
            .map_or_else(|_| String::new(), |stat| format!("{}:{}", stat.st_dev, stat.st_ino)),
    };
    fingerprint(facts.as_bytes()) as u32
}

/// Attempts to find a free name: more than killed processes leave in the way.
pub(crate) const MAX_ATTEMPTS: usize = 100;
