//! Finds out whether a copy of an earlier run has the attributes of its original.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::attributes::extended::{AttrEnds, read};
use crate::attributes::named::NamedAt;

use crate::options::Settings;
use crate::options::preserve::Preserve;

/// Returns whether a copy has the owner and the mode of its original, as far as they are kept.
pub(crate) fn has_owner_and_mode(settings: &Settings<'_>, stat: &Stat, there: &Stat) -> bool {
    let preserve = settings.preserve;
    let has_owner = (there.st_uid, there.st_gid) == (stat.st_uid, stat.st_gid);
    let has_mode = there.st_mode & 0o7777 == settings.mode(stat.st_mode) & 0o7777
        || FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    (has_owner || !preserve.ownership) && (has_mode || !preserve.keeps_mode())
}

/// Returns whether an open copy has the extended attributes of its original that are kept, and no
/// other ACL.
pub(crate) fn has_attributes(preserve: Preserve, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> bool {
    let ends = |from, to| AttrEnds::Open { from, to, mode: 0 };
    has_all(preserve, &ends(from, to), &ends(to, from))
}

/// Returns whether a copy that cannot be opened has them: a link, device, FIFO or socket.
pub(crate) fn has_attributes_by_name(
    preserve: Preserve,
    original: NamedAt<'_>,
    copy: NamedAt<'_>,
) -> bool {
    let (from, to) = (&*original.path(), &*copy.path());
    has_all(preserve, &AttrEnds::Named { from, to }, &AttrEnds::Named { from: to, to: from })
}

/// Returns whether the source of `copy` has all attributes of that of `original`.
fn has_all(preserve: Preserve, original: &AttrEnds<'_>, copy: &AttrEnds<'_>) -> bool {
    if !preserve.keeps_attributes() {
        return true;
    }
    let (mut few, mut many) = ([0; 512], Vec::new());
    let names = match read(&mut few, &mut many, |names| original.list(names)) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => &[],
        Err(_) => return false,
    };
    let names = names.split_inclusive(|&byte| byte == 0);
    let names = names.filter_map(|name| CStr::from_bytes_with_nul(name).ok());
    // An ACL that only the copy has grants rights.
    names
        .chain([c"system.posix_acl_access"])
        .all(|name| !preserve.keeps_attribute(name) || value(original, name) == value(copy, name))
}

/// Returns the value of an attribute of the source; `None` if it has none of this name.
fn value(ends: &AttrEnds<'_>, name: &CStr) -> Option<Vec<u8>> {
    let (mut short, mut long) = ([0; 512], Vec::new());
    read(&mut short, &mut long, |value| ends.get(name, value)).ok().map(<[u8]>::to_vec)
}
