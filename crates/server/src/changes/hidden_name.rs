//! The hidden names of entries during a change. If the server is killed, most of them are removed
//! after a while. An entry that was moved aside for a change that was not made, or a folder with
//! entries that must not be removed, gets its name back instead.

use std::ffi::{CStr, CString, OsStr};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;
use underpass_engine::atomic_file::{
    MAX_HIDDEN, MAX_NAME, beginning, fingerprint, open_entry, rename_new,
};
use underpass_protocol::upload::is_partial_name;

/// Returns a name that is never shown or served, like those of incomplete uploads. If the server is
/// killed, an entry with such a name is removed after a while, and so is one with a hidden name that
/// the copy of a folder has before this one: it has all of this name.
pub(crate) fn hidden_name(name: &CStr) -> CString {
    with_ids(name, MAX_HIDDEN, random(name), random(name))
}

/// Returns a hidden name for an entry that is moved aside; [`restore`] undoes that.
fn aside_name(name: &CStr) -> CString {
    with_ids(name, MAX_NAME, mark(name.to_bytes()), random(name))
}

/// Returns whether a hidden name is that of an entry that was moved aside.
pub(crate) fn is_aside(hidden: &[u8]) -> bool {
    name_of_aside(hidden).is_some()
}

/// Moves the entry `current` aside, so that it can get the name `own` back; returns its hidden
/// name. An attribute keeps a name that is too long for the hidden one.
///
/// # Errors
///
/// As renameat2(2).
pub(super) fn move_aside(folder: &OwnedFd, current: &CStr, own: &CStr) -> Result<CString, Errno> {
    let aside = aside_name(own);
    if name_of_aside(aside.to_bytes()) != Some(own.to_bytes())
        && let Ok(moved) = open_entry(folder, current)
    {
        // On links, and without support for attributes, the rest of the name is lost.
        let _ = fsetxattr(&moved, ATTRIBUTE, own.to_bytes(), XattrFlags::empty());
    }
    rename_new(folder, current, folder, &*aside)?;
    Ok(aside)
}

/// Gives an entry that was moved aside its own name back, if that is free; returns whether it has
/// it now.
pub(crate) fn restore(folder: impl AsFd, hidden: &[u8]) -> bool {
    let Some(cut) = name_of_aside(hidden) else { return false };
    let mut noted = [0; MAX_NAME];
    let whole = if has_mark_of(hidden, cut) {
        Some(cut)
    } else {
        noted_name(&folder, hidden, &mut noted)
            .filter(|name| name.starts_with(cut) && !name.contains(&b'/'))
    };
    let own = whole.filter(|name| has_mark_of(hidden, name)).map(OsStr::from_bytes);
    own.is_some_and(|own| rename_new(&folder, OsStr::from_bytes(hidden), &folder, own).is_ok())
}

/// Returns the name in the attribute of an entry.
fn noted_name<'b>(folder: impl AsFd, hidden: &[u8], buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let moved = open_entry(folder, hidden).ok()?;
    let len = fgetxattr(&moved, ATTRIBUTE, &mut *buffer).ok()?;
    Some(&buffer[..len])
}

/// Returns the possibly truncated name that an entry had before it was moved aside; `None` if the
/// hidden name is that of another entry.
pub(super) fn name_of_aside(hidden: &[u8]) -> Option<&[u8]> {
    let id = id_of(hidden)?;
    id.starts_with(format!("{ASIDE:08x}").as_bytes()).then(|| &hidden[1..hidden.len() - SUFFIX_LEN])
}

/// Returns whether the mark in a hidden name is that of this name.
fn has_mark_of(hidden: &[u8], name: &[u8]) -> bool {
    id_of(hidden).is_some_and(|id| id.starts_with(format!("{:016x}", mark(name)).as_bytes()))
}

/// Returns the digits in a hidden name.
fn id_of(hidden: &[u8]) -> Option<&[u8]> {
    is_partial_name(hidden).then(|| &hidden[hidden.len() - SUFFIX_LEN + 1..])
}

/// Returns the mark of an entry of this name that is moved aside: a constant and a hash of the name.
fn mark(name: &[u8]) -> u64 {
    u64::from(ASIDE) << 32 | fingerprint(name) & u64::from(u32::MAX)
}

/// Returns random bits: each hasher of the standard library has its own random keys.
fn random(name: &CStr) -> u64 {
    RandomState::new().hash_one(name)
}

/// Returns a hidden name of at most `max` bytes.
fn with_ids(name: &CStr, max: usize, first: u64, second: u64) -> CString {
    let mut hidden = vec![b'.'];
    hidden.extend_from_slice(beginning(name.to_bytes(), max - ".".len() - SUFFIX_LEN));
    hidden.extend_from_slice(format!(".{first:016x}{second:016x}.upload").as_bytes());
    // A file name has no NUL, so this one has none either.
    CString::new(hidden).unwrap_or_default()
}

/// The first digits of the id of an entry that is moved aside.
const ASIDE: u32 = 0x6173_6964;

/// The attribute with the whole name of an entry that was moved aside, if it is long.
const ATTRIBUTE: &CStr = c"user.underpass.aside";

/// The number of bytes after the name: a dot, 32 digits and `.upload`.
const SUFFIX_LEN: usize = 1 + 32 + 7;

#[cfg(test)]
mod tests {
    use std::fs;

    use underpass_engine::atomic_file::{self, name_of_hidden};

    use super::*;

    #[test]
    fn hidden_names_fit_and_differ() {
        for len in [1, 10, 75, 76, 214, 215, 255] {
            let name = CString::new(vec![b'n'; len]).unwrap();
            let (one, other) = (hidden_name(&name), hidden_name(&name));
            assert!(aside_name(&name).to_bytes().len() <= MAX_NAME && one != other, "{other:?}");
            let copy = atomic_file::hidden_name(OsStr::from_bytes(one.to_bytes()), Some(u32::MAX));
            assert_eq!(name_of_hidden(copy.as_bytes()), Some(one.to_bytes()));
            assert!(one.to_bytes().starts_with(b".n") && one.to_bytes().ends_with(b".upload"));
            assert!(!is_aside(one.to_bytes()) && is_aside(aside_name(&name).to_bytes()));
        }
        for before in ["", "a", "ab"] {
            let name = CString::new(before.to_owned() + &"\u{65e5}".repeat(80)).unwrap();
            assert!(hidden_name(&name).to_str().is_ok(), "cut in the middle of a character");
        }
    }

    #[test]
    fn only_folders_moved_aside_get_their_name_back_if_it_is_free() {
        let parent = tempfile::tempdir().unwrap();
        let folder = fs::File::open(parent.path()).unwrap();
        let make =
            |name: &CStr| fs::create_dir(parent.path().join(name.to_str().unwrap())).unwrap();
        let restored = |hidden: &CStr| {
            make(hidden);
            restore(&folder, hidden.to_bytes())
        };
        assert!(restored(&aside_name(c"free")) && parent.path().join("free").exists());
        make(c"taken");
        assert!(!restored(&aside_name(c"taken")));
        assert!(!restored(&hidden_name(c"removed")));
        // A part of its name is missing, and no attribute has it.
        let long = CString::new("n".repeat(240)).unwrap();
        assert!(!restored(&aside_name(&long)) && is_aside(aside_name(&long).to_bytes()));
    }

    #[test]
    fn a_folder_with_a_long_name_gets_it_back() {
        let parent = tempfile::tempdir().unwrap();
        let folder = OwnedFd::from(fs::File::open(parent.path()).unwrap());
        let name = "\u{65e5}".repeat(75);
        let own = CString::new(name.clone()).unwrap();
        fs::create_dir(parent.path().join(&name)).unwrap();
        let aside = move_aside(&folder, &own, &own).unwrap();
        let moved = open_entry(&folder, &aside).unwrap();
        if fgetxattr(&moved, ATTRIBUTE, &mut [0; MAX_NAME][..]) == Err(Errno::OPNOTSUPP) {
            return underpass_testkit::skip("this file system has no attributes");
        }
        assert!(restore(&folder, aside.to_bytes()) && parent.path().join(&name).exists());
        // Another name in the attribute is not trusted.
        for other in [&*"n".repeat(240), "../name", ""] {
            let aside = move_aside(&folder, &own, &own).unwrap();
            fsetxattr(&moved, ATTRIBUTE, other.as_bytes(), XattrFlags::empty()).unwrap();
            assert!(!restore(&folder, aside.to_bytes()), "{other}");
            rename_new(&folder, &*aside, &folder, &*own).unwrap();
        }
    }
}
