//! Names on file systems that ignore their case.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Stat, fstatfs, ioctl_getflags, statat};
use rustix::io::Errno;

use super::names::{find_name, for_each_name};
use super::open::reopen_folder;
use crate::integrity::FileId;

/// Returns whether the file system ignores the case of names: whether the entry is also found under
/// its name in the other case. `None` if that is unknown: the name may be gone, have no letters
/// with case, or have letters whose case mapping differs between file systems.
pub fn ignores_case(folder: impl AsFd, name: &[u8]) -> Option<bool> {
    let folder = folder.as_fd();
    is_found_in_any_case(folder, name, id(folder, name).ok()?)
}

/// Does the same as [`ignores_case`] for an entry whose identity is known.
fn is_found_in_any_case(folder: BorrowedFd<'_>, name: &[u8], own: FileId) -> Option<bool> {
    let text = std::str::from_utf8(name).ok()?;
    let has_ascii = text.contains(|letter: char| letter.is_ascii_alphabetic());
    let (lower, upper) = if has_ascii {
        (text.to_ascii_lowercase(), text.to_ascii_uppercase())
    } else {
        (text.to_lowercase(), text.to_uppercase())
    };
    let other = if lower == text { upper } else { lower };
    if other == text {
        return None;
    }
    match id(folder, other.as_bytes()) {
        Ok(found) if found == own => Some(true),
        // Either two files, or one that replaced another whose name in the other case the kernel
        // still caches, as FUSE does for a second.
        Ok(_) => lists_both(folder, name, other.as_bytes()).map(|both| !both),
        Err(Errno::NOENT) if has_ascii => Some(false),
        Err(_) => None,
    }
}

/// Returns the name under which a folder lists the entry found as `name`, if the two differ because
/// the file system ignores case or other differences.
///
/// The folder is read only if its file system may ignore such differences.
pub fn listed_name(folder: impl AsFd, name: &[u8], entry: &Stat) -> Option<Vec<u8>> {
    let folder = folder.as_fd();
    let has_variants = name.iter().any(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii());
    if !has_variants
        || is_found_in_other_case(folder, name) == Some(false)
        || is_taken_as_it_is(folder, name)
    {
        return None;
    }
    let own = FileId::of(entry);
    // Names that differ only in case are preferred: a file can have several names.
    let (folded, mut similar) = (fold_case(name), None);
    let is_own = |listed: &CStr| id(folder, listed.to_bytes()) == Ok(own);
    let is_listed = find_name(folder, |listed| {
        if similar.is_none() && fold_case(listed.to_bytes()) == folded && is_own(listed) {
            similar = Some(listed.to_owned());
        }
        listed.to_bytes() == name
    });
    match is_listed.ok()? {
        Some(_) => None,
        None => similar.or_else(|| find_name(folder, is_own).ok()?).map(CString::into_bytes),
    }
}

/// Returns whether the name in the other ASCII case is found; `None` if it has no ASCII letters.
fn is_found_in_other_case(folder: BorrowedFd<'_>, name: &[u8]) -> Option<bool> {
    let text = std::str::from_utf8(name).ok()?;
    let (lower, upper) = (text.to_ascii_lowercase(), text.to_ascii_uppercase());
    let other = if lower == text { upper } else { lower };
    (other != text).then(|| id(folder, other.as_bytes()) != Err(Errno::NOENT))
}

/// Returns whether the file system compares this name byte by byte; false if that is unknown.
fn is_taken_as_it_is(folder: BorrowedFd<'_>, name: &[u8]) -> bool {
    #[allow(clippy::unnecessary_cast)] // the type differs by target
    let kind = fstatfs(folder).map_or(0, |facts| facts.f_type as u32);
    match kind {
        BTRFS => return true,
        // XFS can ignore the case of ASCII letters and no other difference.
        XFS => return !name.iter().any(u8::is_ascii_alphabetic),
        _ => {}
    }
    if !FOLDING.contains(&kind) {
        return false;
    }
    match reopen_folder(folder).and_then(ioctl_getflags) {
        Ok(flags) => flags.bits() & CASEFOLD == 0,
        // A kernel without inode flags on tmpfs has no case-insensitive folders there either.
        Err(errno) => errno == Errno::NOTTY,
    }
}

/// Returns the identity of the entry with this name.
fn id(folder: BorrowedFd<'_>, name: &[u8]) -> Result<FileId, Errno> {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileId::of(&stat))
}

/// Returns whether a folder lists both names, which is stronger evidence than finding both; `None`
/// if it cannot be read.
fn lists_both(folder: BorrowedFd<'_>, one: &[u8], other: &[u8]) -> Option<bool> {
    let mut found = 0;
    for_each_name(folder, |name| {
        found += usize::from([one, other].contains(&name.to_bytes()));
    })
    .ok()?;
    Some(found == 2)
}

/// Returns a name in the form that a case-insensitive file system may compare. Names that differ in
/// more than case have different forms.
#[must_use]
pub fn fold_case(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => name.to_ascii_lowercase(),
    }
}

const BTRFS: u32 = 0x9123_683e;
const XFS: u32 = 0x5846_5342;

/// The magic numbers of the file systems that mark their case-insensitive folders with
/// [`CASEFOLD`]: ext4, F2FS, tmpfs and overlayfs.
const FOLDING: [u32; 4] = [0xef53, 0xf2f5_2010, 0x0102_1994, 0x794c_7630];

/// `FS_CASEFOLD_FL` of linux/fs.h.
const CASEFOLD: u32 = 0x4000_0000;
