//! Extended attributes (xattr(7)), among them ACLs and capabilities.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{
    Mode, StatVfs, XattrFlags, fchmod, fgetxattr, flistxattr, fsetxattr, fstatvfs, lgetxattr,
    llistxattr, lsetxattr, statvfs,
};
use rustix::io::Errno;

use crate::attributes::missing::MissingAttrs;
use crate::attributes::permissions;
use crate::options::preserve::{Preserve, PreserveXattrs};

/// The outcome of copying extended attributes.
pub(super) struct AttrCopy {
    /// Whether the copy has all of them.
    pub(super) is_complete: bool,
    /// Whether the copy may lack an ACL, so that its group must not get the permissions of the
    /// mask.
    pub(super) lacks_acl: bool,
    /// Whether the copy was made writable for them, and its mode has to be set again.
    pub(super) was_opened: bool,
}

/// An original and its copy, as the calls for extended attributes (xattr(7)) name them.
pub(super) enum AttrEnds<'a> {
    /// Two open files, and the mode that the copy is to have in the end.
    Open { from: BorrowedFd<'a>, to: BorrowedFd<'a>, mode: u32 },
    /// Paths to entries that cannot be opened. Links are not followed.
    Named { from: &'a Path, to: &'a Path },
}

impl AttrEnds<'_> {
    pub(super) fn list(&self, names: &mut [u8]) -> Result<usize, Errno> {
        match *self {
            Self::Open { from, .. } => flistxattr(from, names),
            Self::Named { from, .. } => llistxattr(from, names),
        }
    }

    pub(super) fn get(&self, name: &CStr, value: &mut [u8]) -> Result<usize, Errno> {
        match *self {
            Self::Open { from, .. } => fgetxattr(from, name, value),
            Self::Named { from, .. } => lgetxattr(from, name, value),
        }
    }

    fn set(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        match *self {
            Self::Open { to, .. } => fsetxattr(to, name, value, XattrFlags::empty()),
            Self::Named { to, .. } => lsetxattr(to, name, value, XattrFlags::empty()),
        }
    }

    /// Returns whether the file system of the copy has room, as far as it reports that.
    fn has_room(&self) -> bool {
        let found = match *self {
            Self::Open { to, .. } => fstatvfs(to),
            Self::Named { to, .. } => to.parent().map_or(Err(Errno::INVAL), statvfs),
        };
        let is_full = |it: StatVfs| it.f_blocks > 0 && it.f_bavail == 0;
        !found.is_ok_and(is_full)
    }

    /// Makes the copy writable until its mode is set.
    fn make_writable(&self) -> Result<(), Errno> {
        match *self {
            Self::Open { to, mode, .. } => fchmod(to, Mode::from_raw_mode(mode & 0o777 | 0o200)),
            Self::Named { .. } => Err(Errno::ACCESS),
        }
    }
}

/// Copies extended attributes, among them ACLs and capabilities.
///
/// The kernel accepts user attributes only for a file whose mode lets its owner write, even through
/// a writable descriptor, so the copy is made writable until its mode is set.
///
/// An ACL that cannot be kept is a failure, as it grants and denies access. Other attributes are
/// failures only if required: many file systems support none, or accept some only from root.
pub(super) fn copy_attributes(
    preserve: Preserve,
    ends: &AttrEnds<'_>,
    missing: &mut MissingAttrs,
) -> AttrCopy {
    let mut copied = AttrCopy { is_complete: true, lacks_acl: false, was_opened: false };
    let (mut few, mut many) = ([0; 512], Vec::new());
    let names = match read(&mut few, &mut many, |names| ends.list(names)) {
        Ok(names) => names,
        // This file system has no attributes, so there are none to keep.
        Err(Errno::OPNOTSUPP) => return copied,
        Err(Errno::ACCESS | Errno::PERM) if preserve.xattrs != PreserveXattrs::Required => {
            return AttrCopy { is_complete: false, lacks_acl: true, ..copied };
        }
        // Without /proc the attributes of entries that cannot be opened are out of reach.
        Err(Errno::NOENT) if !Path::new("/proc/self/fd").exists() => return copied,
        Err(errno) => {
            missing.record("reading the attributes for", Err::<(), _>(errno));
            return AttrCopy { is_complete: false, lacks_acl: true, ..copied };
        }
    };
    for name in names.split_inclusive(|&byte| byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if !preserve.keeps_attribute(name) {
            continue;
        }
        let (mut short, mut long) = ([0; 512], Vec::new());
        let set_again = |value: &[u8]| match ends.set(name, value) {
            Err(Errno::ACCESS) => match ends.make_writable() {
                Ok(()) => (true, ends.set(name, value)),
                Err(_) => (false, Err(Errno::ACCESS)),
            },
            // Every file on NFSv4 has this attribute.
            Err(_) if name == c"system.nfs4_acl" && permissions::says_mode_alone(value) => {
                (false, Ok(()))
            }
            outcome => (false, outcome),
        };
        let (was_opened, outcome) = match read(&mut short, &mut long, |value| ends.get(name, value))
        {
            // It was removed since the attributes were listed.
            Err(Errno::NODATA) => continue,
            Ok(value) => set_again(value),
            Err(errno) => (false, Err(errno)),
        };
        copied.was_opened |= was_opened;
        let Err(errno) = outcome else { continue };
        copied.is_complete = false;
        if name.to_bytes().starts_with(b"system.posix_acl_") {
            copied.lacks_acl = true;
            missing.record("keeping ACL of", Err::<(), _>(errno));
        } else if preserve.xattrs == PreserveXattrs::Required || !is_refusal(errno, ends) {
            missing.record("keeping attributes of", Err::<(), _>(errno));
        }
    }
    copied
}

/// Returns whether the file system refuses an attribute, or the kernel refuses it to this user.
fn is_refusal(errno: Errno, ends: &AttrEnds<'_>) -> bool {
    match errno {
        // Not on that file system, or not for us: security.* and trusted.* are for root.
        Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::INVAL => true,
        // Too long for that file system.
        Errno::RANGE | Errno::TOOBIG | Errno::NAMETOOLONG => true,
        // ext4 reports a full attribute block as if the disk were full.
        Errno::NOSPC => ends.has_room(),
        _ => false,
    }
}

/// Reads into a small buffer, and if that is too small, into one of the maximum size (xattr(7)).
pub(super) fn read<'b>(
    small: &'b mut [u8],
    large: &'b mut Vec<u8>,
    call: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> Result<&'b [u8], Errno> {
    match call(small) {
        Ok(len) => Ok(&small[..len.min(small.len())]),
        Err(Errno::RANGE) => {
            large.resize(64 << 10, 0);
            let len = call(large)?;
            Ok(&large[..len.min(large.len())])
        }
        Err(errno) => Err(errno),
    }
}
