//! Permissions of new files, with regard to ACLs.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{acl_entry, try_without_acl};

use crate::attributes::inherited::default_acl;
use crate::attributes::named::NamedAt;

/// Does the same as [`without_acl`](underpass_engine::atomic_file::without_acl) for entries that
/// cannot be opened: devices, FIFOs and sockets.
///
/// # Errors
///
/// As openat(2) and getxattr(2), but not without /proc: the group gets no permissions then.
pub(crate) fn without_acl_by_name(entry: NamedAt<'_>, mode: u32) -> Result<u32, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(entry.folder, entry.name, flags, Mode::empty())?;
    match try_without_acl(file.as_fd(), mode) {
        Err(Errno::NOENT) => Ok(mode & !0o070),
        found => found,
    }
}

/// Returns the permissions that a new folder may have because of the default ACL that it has got
/// from the folder above. The kernel applies them when a folder is made, but not when its mode is
/// set later.
pub(crate) fn inherited_by(folder: BorrowedFd<'_>) -> u32 {
    let mut acl = [0; 4096];
    match default_acl(folder, &mut acl) {
        Ok(len) => allowed_by(&acl[..len.min(acl.len())]),
        // The ACL is too long for the buffer.
        Err(Errno::RANGE) => 0o700,
        Err(_) => 0o777,
    }
}

/// Returns the mode of which a default ACL allows every new file a part.
fn allowed_by(acl: &[u8]) -> u32 {
    let entry = |tag| acl_entry(acl, tag);
    let group = entry(MASK).or_else(|| entry(GROUP_OBJ));
    entry(USER_OBJ).unwrap_or(7) << 6 | group.unwrap_or(7) << 3 | entry(OTHER).unwrap_or(7)
}

/// Returns whether an NFSv4 ACL (RFC 7530, section 6) names only owner, group and everyone, whose
/// rights are in the mode.
pub(crate) fn says_mode_alone(acl: &[u8]) -> bool {
    let Some(mut entries) = acl.get(4..) else { return false };
    while let Some((head, rest)) = entries.split_first_chunk::<16>() {
        let len = u32::from_be_bytes([head[12], head[13], head[14], head[15]]) as usize;
        let who = rest.get(..len);
        if !who.is_some_and(|who| [&b"OWNER@"[..], b"GROUP@", b"EVERYONE@"].contains(&who)) {
            return false;
        }
        entries = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    entries.is_empty()
}

const USER_OBJ: u32 = 1;
const GROUP_OBJ: u32 = 4;
const MASK: u32 = 16;
const OTHER: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_acl_allows_what_its_mask_does() {
        let entry = |tag: u16, may: u16| {
            [tag.to_le_bytes(), may.to_le_bytes(), [0xff; 2], [0xff; 2]].concat()
        };
        let acl =
            [vec![2, 0, 0, 0], entry(1, 6), entry(2, 7), entry(4, 5), entry(16, 7), entry(32, 0)];
        assert_eq!(allowed_by(&acl.concat()), 0o670);
    }

    #[test]
    fn an_nfs4_acl_of_owner_group_and_everyone_is_the_mode() {
        let entry = |who: &[u8]| {
            let len = u32::try_from(who.len()).unwrap().to_be_bytes();
            let pad = vec![0; who.len().next_multiple_of(4) - who.len()];
            [&[0; 12], &len[..], who, &pad].concat()
        };
        let acl = |all: &[&[u8]]| {
            let entries: Vec<_> = all.iter().map(|who| entry(who)).collect();
            [vec![0, 0, 0, 3], entries.concat()].concat()
        };
        let plain = acl(&[b"OWNER@", b"GROUP@", b"EVERYONE@"]);
        assert!(says_mode_alone(&plain));
        assert!(!says_mode_alone(&acl(&[b"OWNER@", b"1000", b"GROUP@", b"EVERYONE@"])));
        assert!(!says_mode_alone(&plain[..plain.len() - 4]));
        assert!(!says_mode_alone(&[0; 3]));
    }
}
