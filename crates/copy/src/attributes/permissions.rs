//! Permissions of new files, with regard to ACLs.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use underpass_engine::atomic_file::acl_entry;
pub use underpass_engine::atomic_file::without_acl;

use crate::attributes::inherited::default_acl;
use crate::attributes::named::NamedAt;

/// Does the same as [`without_acl`] for entries that cannot be opened: devices, FIFOs and sockets.
pub(crate) fn without_acl_by_name(entry: NamedAt<'_>, mode: u32) -> u32 {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(entry.folder, entry.name, flags, Mode::empty()) {
        Ok(file) => without_acl(file.as_fd(), mode),
        Err(_) => mode & !0o070,
    }
}

/// Returns the permissions that a new folder may have because of the default ACL that it has got
/// from the folder above. The kernel applies them when a folder is made, but not when its mode is
/// set later.
pub(crate) fn inherited_by(folder: BorrowedFd<'_>) -> u32 {
    let mut acl = [0; 4096];
    match default_acl(folder, &mut acl) {
        Ok(len) => allowed_by(&acl[..len.min(acl.len())]),
        // An ACL that is too long to be looked at.
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
}
