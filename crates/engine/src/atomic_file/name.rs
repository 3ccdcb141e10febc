//! Names for files that are not complete yet.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Returns whether a path can only be that of a folder, as it ends in `/` or `/.`, which
/// [`Path::file_name`] does not tell.
#[must_use]
pub fn names_folder(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    path.ends_with(b"/") || path.ends_with(b"/.")
}

/// Returns the folder that a path names a file in: the current one if it is only a name.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// Returns the hidden name for a file that will be called `name`: always the same one, so that a
/// later run finds the leftover of an earlier one, or one with a number.
#[must_use]
pub fn hidden_name(name: &OsStr, number: Option<u32>) -> OsString {
    let number = number.map_or_else(String::new, |number| format!(".{number}"));
    let name = shortened(name, MAX_HIDDEN);
    let bytes = [b".", name.as_bytes(), number.as_bytes(), b".part"].concat();
    OsString::from_vec(bytes)
}

/// Returns the name, or, if it has more than `max` bytes, its beginning and a hash of the whole
/// name, so that long names with the same beginning stay distinct.
///
/// # Panics
///
/// If `max` has no room for the number.
#[must_use]
pub fn shortened(name: &OsStr, max: usize) -> OsString {
    if name.len() <= max {
        return name.to_owned();
    }
    let suffix = format!("-{:016x}", fingerprint(name.as_bytes()));
    let mut bytes = name.as_bytes()[..max - suffix.len()].to_vec();
    bytes.extend(suffix.bytes());
    OsString::from_vec(bytes)
}

/// Returns the hash of some bytes by FNV-1a, which is the same in every version of this program.
#[must_use]
pub fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The longest name of a file that Linux file systems take, in bytes.
pub const MAX_NAME: usize = 255;

/// The room for the name itself, without the leading dot and the number and `.part` after it.
const MAX_HIDDEN: usize = MAX_NAME - 1 - ".4294967295.part".len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_are_never_too_long_and_never_the_same() {
        let long = |last: u8| OsString::from_vec([vec![b'a'; 254], vec![last]].concat());
        for name in [OsString::from("short"), long(b'x'), long(b'y')] {
            assert!(hidden_name(&name, Some(u32::MAX)).len() <= MAX_NAME);
        }
        assert_ne!(hidden_name(&long(b'x'), None), hidden_name(&long(b'y'), None));
        assert_eq!(hidden_name(OsStr::new("short"), None), ".short.part");
        assert_eq!(hidden_name(OsStr::new("short"), Some(7)), ".short.7.part");
    }

    #[test]
    fn the_hash_is_that_of_the_test_vectors() {
        // draft-eastlake-fnv, appendix C.
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
