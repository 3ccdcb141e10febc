//! Names that things have until they are whole.

use std::ffi::{CStr, CString};
use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

/// The hidden name of what is to become `name`: always the same one, so that a later run finds what
/// an earlier one has left, or with a number that makes it this process's own.
pub(crate) fn hidden(name: &CStr, number: Option<u32>) -> CString {
    let bytes = name.to_bytes();
    let mut suffix = String::new();
    // A long name leaves no room for more: its beginning and a number made of all of it.
    let kept = &bytes[..bytes.len().min(LONGEST)];
    if kept.len() < bytes.len() {
        let _ = write!(suffix, "-{:016x}", fingerprint(bytes));
    }
    if let Some(number) = number {
        let _ = write!(suffix, ".{number}");
    }
    suffix.push_str(".part");
    let name = [b".", kept, suffix.as_bytes()].concat();
    // A name has no zero byte in it, and none was added.
    CString::new(name).unwrap_or_default()
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

/// FNV-1a: the same in every version of this program.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// More names than killed processes leave in the way.
const ATTEMPTS: usize = 100;

/// File systems take names of 255 bytes.
const LONGEST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_are_never_too_long_and_never_the_same() {
        let long =
            |last: u8| CString::new([vec![b'a'; 254], vec![last]].concat()).unwrap_or_default();
        for name in [c"short".to_owned(), long(b'x'), long(b'y')] {
            assert!(hidden(&name, Some(u32::MAX)).as_bytes().len() <= 255);
        }
        assert_ne!(hidden(&long(b'x'), None), hidden(&long(b'y'), None));
        assert_eq!(hidden(c"short", None).as_c_str(), c".short.part");
    }
}
