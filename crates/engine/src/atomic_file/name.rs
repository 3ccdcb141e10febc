//! Names for files that are not complete yet.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Returns whether a path can only name a folder because it ends in `/` or `/.`, which
/// [`Path::file_name`] ignores.
#[must_use]
pub fn names_folder(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    path.ends_with(b"/") || path.ends_with(b"/.")
}

/// Returns the folder part of a file's path; the current folder if the path is only a name.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// Returns the hidden name for a file that will be called `name`. Without a number it is always the
/// same, so that a later run finds the leftover of an earlier one. The digits of a number end in a
/// checksum, by which [`name_of_hidden`] recognizes the name as one of underpass.
#[must_use]
pub fn hidden_name(name: &OsStr, number: Option<u32>) -> OsString {
    let name = shortened(name, MAX_HIDDEN);
    let number = number.map_or_else(String::new, |number| {
        let digits = u64::from(number) << 32 | u64::from(checksum(name.as_bytes(), number));
        format!(".{digits}")
    });
    let bytes = [b".", name.as_bytes(), number.as_bytes(), b".part"].concat();
    OsString::from_vec(bytes)
}

/// Returns the final name for a numbered [hidden name](hidden_name) of underpass, recognized by its
/// checksum; `None` for any other name.
#[must_use]
pub fn name_of_hidden(hidden: &[u8]) -> Option<&[u8]> {
    parse_hidden(hidden).map(|(name, _)| name)
}

/// Returns the number in a [hidden name](hidden_name) of underpass.
pub(super) fn number_of_hidden(hidden: &[u8]) -> Option<u32> {
    parse_hidden(hidden).map(|(_, number)| number)
}

fn parse_hidden(hidden: &[u8]) -> Option<(&[u8], u32)> {
    let rest = hidden.strip_prefix(b".")?.strip_suffix(b".part")?;
    let dot = rest.iter().rposition(|&byte| byte == b'.')?;
    let digits: u64 = std::str::from_utf8(&rest[dot + 1..]).ok()?.parse().ok()?;
    let (name, number) = (&rest[..dot], u32::try_from(digits >> 32).ok()?);
    (!name.is_empty() && digits as u32 == checksum(name, number)).then_some((name, number))
}

/// Returns the checksum of a hidden name.
fn checksum(name: &[u8], number: u32) -> u32 {
    fingerprint(&[name, &number.to_be_bytes()].concat()) as u32
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
    let mut bytes = beginning(name.as_bytes(), max - suffix.len()).to_vec();
    bytes.extend(suffix.bytes());
    OsString::from_vec(bytes)
}

/// Returns the first bytes of a name, at most `max`. They never end in the middle of a character,
/// because some file systems require valid UTF-8.
#[must_use]
pub fn beginning(name: &[u8], max: usize) -> &[u8] {
    let mut end = name.len().min(max);
    while end > 0 && end < name.len() && name[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &name[..end]
}

/// Returns the FNV-1a hash of some bytes, which is the same in every version of underpass.
#[must_use]
pub fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The longest file name on Linux file systems, in bytes.
pub const MAX_NAME: usize = 255;

/// The longest file name in bytes where encrypted names are limited to 255 bytes, as on eCryptfs.
pub const MAX_SHORT_NAME: usize = 143;

/// The longest name, in bytes, that its [hidden name](hidden_name) has as a whole: what is left
/// beside the leading dot and the trailing number and `.part`.
pub const MAX_HIDDEN: usize = MAX_SHORT_NAME - 1 - ".18446744073709551615.part".len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_are_never_too_long_and_never_the_same() {
        let long = |last: u8| OsString::from_vec([vec![b'a'; 254], vec![last]].concat());
        for name in [OsString::from("short"), long(b'x'), long(b'y')] {
            assert!(hidden_name(&name, Some(u32::MAX)).len() <= MAX_SHORT_NAME);
        }
        assert_ne!(hidden_name(&long(b'x'), None), hidden_name(&long(b'y'), None));
        assert_eq!(hidden_name(OsStr::new("short"), None), ".short.part");
        for before in ["", "a", "ab"] {
            let name = OsString::from(before.to_owned() + &"\u{65e5}".repeat(80));
            let hidden = hidden_name(&name, Some(0));
            assert!(hidden.to_str().is_some(), "cut in the middle of a character: {hidden:?}");
        }
    }

    #[test]
    fn only_hidden_names_of_underpass_are_recognized() {
        for name in ["k", "a.b", "a.1"] {
            for number in [0, 7, u32::MAX] {
                let hidden = hidden_name(OsStr::new(name), Some(number));
                assert_eq!(name_of_hidden(hidden.as_bytes()), Some(name.as_bytes()), "{hidden:?}");
                let other = hidden.to_str().unwrap().replacen(name, "other", 1);
                assert_eq!(name_of_hidden(other.as_bytes()), None, "{other}");
            }
        }
        for hidden in
            [".k.123.part", ".k.2024.part", ".k.part", "k.1.part", ".k.1x.part", "..1.part"]
        {
            assert_eq!(name_of_hidden(hidden.as_bytes()), None, "{hidden}");
        }
    }

    #[test]
    fn the_hash_is_that_of_the_test_vectors() {
        // draft-eastlake-fnv, appendix C.
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
