//! Names that things have until they are whole.

use std::ffi::{CStr, CString};
use std::fmt::Write;

/// The hidden name of what is to become `name`: always the same one, so that a later run finds what
/// an earlier one has left, or with a number that makes it this process's own.
pub(super) fn hidden(name: &CStr, number: Option<u32>) -> CString {
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

/// FNV-1a: the same in every version of this program.
pub(super) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

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
