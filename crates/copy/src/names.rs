//! Names that things have until they are whole.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use underpass_engine::atomic_file::{fingerprint, hidden_name};

/// The hidden name of what is to become `name`: always the same one, so that a later run finds what
/// an earlier one has left, or with a number that makes it this process's own.
pub(crate) fn hidden(name: &CStr, number: Option<u32>) -> CString {
    let hidden = hidden_name(OsStr::from_bytes(name.to_bytes()), number);
    // A name has no zero byte in it, and none was added.
    CString::new(hidden.into_vec()).unwrap_or_default()
}

/// Calls `make` with hidden names of this process's own until one is free: processes that were killed
/// may have had its number, as those in containers have it again and again.
pub(crate) fn claim<T>(
    name: &CStr,
    mut make: impl FnMut(&CStr) -> Result<T, Errno>,
) -> Result<(T, CString), Errno> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut number = std::process::id();
    for _ in 0..ATTEMPTS {
        let hidden = hidden(name, Some(number));
        match make(&hidden) {
            Err(Errno::EXIST) => {}
            made => return made.map(|made| (made, hidden)),
        }
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        number = fingerprint(format!("{}-{next}", std::process::id()).as_bytes()) as u32;
    }
    Err(Errno::EXIST)
}

/// More names than killed processes leave in the way.
const ATTEMPTS: usize = 100;
