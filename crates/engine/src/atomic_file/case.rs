//! Names on file systems that ignore their case.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Stat, statat};
use rustix::io::Errno;

use super::names::for_each_name;
use crate::integrity::FileId;

/// Returns whether an entry of a folder is also found by its name in the other case, as on a
/// file system that ignores case; `None` if that cannot be told: the name may be gone, have no
/// case, or letters whose case is not everywhere the same.
pub fn ignores_case(folder: impl AsFd, name: &[u8]) -> Option<bool> {
    let folder = folder.as_fd();
    is_found_in_any_case(folder, name, id(folder, name).ok()?)
}

/// Returns the same for the entry that has the name.
fn is_found_in_any_case(folder: BorrowedFd<'_>, name: &[u8], own: FileId) -> Option<bool> {
    let text = std::str::from_utf8(name).ok()?;
    let has_ascii = text.contains(|letter: char| letter.is_ascii_alphabetic());
    let (lower, upper) = match has_ascii {
        true => (text.to_ascii_lowercase(), text.to_ascii_uppercase()),
        false => (text.to_lowercase(), text.to_uppercase()),
    };
    let other = if lower == text { upper } else { lower };
    if other == text {
        return None;
    }
    match id(folder, other.as_bytes()) {
        Ok(found) if found == own => Some(true),
        // Two files, or one whose other name the kernel remembers from before it was replaced, as
        // it does for a second with FUSE.
        Ok(_) => lists_both(folder, name, other.as_bytes()).map(|both| !both),
        Err(Errno::NOENT) if has_ascii => Some(false),
        Err(_) => None,
    }
}

/// Returns the listed name of the entry that is found by this name and has these attributes, if the
/// two names differ: the file system ignores the case of names there, or other differences.
pub fn listed_name(folder: impl AsFd, name: &[u8], entry: &Stat) -> Option<Vec<u8>> {
    let folder = folder.as_fd();
    let has_variants = name.iter().any(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii());
    let own = FileId::of(entry);
    if !has_variants || is_found_in_any_case(folder, name, own) == Some(false) {
        return None;
    }
    let mut listed = Vec::new();
    for_each_name(folder, |name| listed.push(name.to_bytes().to_vec())).ok()?;
    if listed.iter().any(|listed| listed == name) {
        return None;
    }
    // Those that differ in case alone come first: a file can have several names.
    let folded = fold_case(name);
    listed.sort_by_cached_key(|listed| fold_case(listed) != folded);
    listed.into_iter().find(|listed| id(folder, listed) == Ok(own))
}

/// Returns the identity of what has a name.
fn id(folder: BorrowedFd<'_>, name: &[u8]) -> Result<FileId, Errno> {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileId::of(&stat))
}

/// Returns whether a folder lists both names, which says more than that both are found; `None` if
/// it cannot be read.
fn lists_both(folder: BorrowedFd<'_>, one: &[u8], other: &[u8]) -> Option<bool> {
    let mut found = 0;
    for_each_name(folder, |name| {
        found += usize::from([one, other].contains(&name.to_bytes()));
    })
    .ok()?;
    Some(found == 2)
}

/// Returns a name as a file system may compare it that ignores case. Names that differ by more than
/// case give different ones.
#[must_use]
pub fn fold_case(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => name.to_ascii_lowercase(),
    }
}
