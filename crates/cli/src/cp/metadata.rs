//! What a file has besides its bytes: owner, attributes, mode and times, given in this order, for
//! each takes away from those before it: a change of owner the set-user-id bit and capabilities,
//! every change the times.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown,
    fgetxattr, flistxattr, fremovexattr, fsetxattr, futimens, lgetxattr, llistxattr, lsetxattr,
    utimensat,
};
use rustix::io::Errno;

use super::folder::{Folder, Heritage};
use super::job::At;
use super::settings::Settings;
use super::totals::Totals;
use crate::failure::Failure;

/// How a new file is to be made, and what is to be done about it afterwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// The permissions with which it is made.
    pub(super) first: u32,
    /// The permissions that it has to have.
    mode: u32,
    /// Whether it would belong to somebody else.
    is_foreign: bool,
    /// Whether its permissions have to be set again.
    is_other: bool,
}

impl Manner {
    /// How to make a copy of what has these facts, in such a folder.
    pub(super) fn new(settings: &Settings<'_>, stat: &Stat, heritage: Heritage) -> Self {
        let mode = settings.mode(stat.st_mode);
        let is_foreign =
            settings.preserve && (heritage.group || (stat.st_uid, stat.st_gid) != settings.owner);
        let is_other = is_foreign || mode & 0o6000 != 0 || (settings.preserve && heritage.acl);
        // Until it has its owner, nobody else is to open it.
        let first = mode & if is_foreign { 0o700 } else { 0o1777 };
        Self { first, mode, is_foreign, is_other }
    }
}

/// Gives a copy all that its original has; a file that was there before keeps its mode.
pub(super) fn keep(
    settings: &Settings<'_>,
    ends: (BorrowedFd<'_>, BorrowedFd<'_>),
    stat: &Stat,
    manner: Manner,
    (is_new, heritage): (bool, Heritage),
    totals: &mut Totals,
) -> Result<(), (&'static str, Errno)> {
    let (from, to) = ends;
    let mut mode = manner.mode;
    if settings.preserve {
        if (manner.is_foreign || !is_new) && !give(stat, |uid, gid| fchown(to, uid, gid))? {
            totals.without_owner += 1;
            mode &= 0o1777;
        }
        if heritage.acl {
            // What it got from the folder; most often nothing else is to be there.
            let _ = fremovexattr(to, c"system.posix_acl_access");
        }
        let copied = copy_attributes(
            |list| flistxattr(from, list),
            |name, value| fgetxattr(from, name, value),
            |name, value| fsetxattr(to, name, value, XattrFlags::empty()),
        );
        totals.without_attributes +=
            u64::from(!copied.map_err(|errno| ("keeping attributes of", errno))?);
    }
    if manner.is_other || (!is_new && settings.preserve) {
        fchmod(to, Mode::from_raw_mode(mode)).map_err(|errno| ("keeping mode of", errno))?;
    }
    futimens(to, &times(stat)).map_err(|errno| ("keeping times of", errno))
}

/// The same for what cannot be opened: links, devices, FIFOs, sockets.
pub(super) fn keep_by_name(
    settings: &Settings<'_>,
    (from, old): (BorrowedFd<'_>, &CStr),
    (to, new): (BorrowedFd<'_>, &CStr),
    stat: &Stat,
    totals: &mut Totals,
) -> Result<(), (&'static str, Errno)> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    if settings.preserve {
        if !give(stat, |uid, gid| chownat(to, new, uid, gid, flags))? {
            totals.without_owner += 1;
        }
        let (from, to) = (path(from, old), path(to, new));
        let copied = copy_attributes(
            |list| llistxattr(&from, list),
            |name, value| lgetxattr(&from, name, value),
            |name, value| lsetxattr(&to, name, value, XattrFlags::empty()),
        );
        totals.without_attributes +=
            u64::from(!copied.map_err(|errno| ("keeping attributes of", errno))?);
    }
    utimensat(to, new, &times(stat), flags).map_err(|errno| ("keeping times of", errno))
}

/// Everything in a folder is done: gives it what its original has. Returns whether owner and
/// attributes could be kept.
pub(super) fn finish_folder(
    settings: &Settings<'_>,
    folder: &Folder,
    stat: &Stat,
) -> Result<(bool, bool), Failure> {
    let (from, to) = (folder.source.as_fd(), folder.target.as_fd());
    let path = || folder.target_path(c"");
    let mut mode = settings.mode(stat.st_mode);
    let mut kept = (true, true);
    if settings.preserve {
        let is_given = give(stat, |uid, gid| fchown(to, uid, gid));
        kept.0 = is_given.map_err(|(_, errno)| errno).at("keeping owner of", path)?;
        if !kept.0 {
            mode &= 0o1777;
        }
        kept.1 = copy_attributes(
            |list| flistxattr(from, list),
            |name, value| fgetxattr(from, name, value),
            |name, value| fsetxattr(to, name, value, XattrFlags::empty()),
        )
        .at("keeping attributes of", path)?;
    } else if folder.heritage.group {
        mode |= 0o2000;
    }
    fchmod(to, Mode::from_raw_mode(mode)).at("keeping mode of", path)?;
    futimens(to, &times(stat)).at("keeping times of", path)?;
    Ok(kept)
}

/// Gives a copy the owner of its original. Who may not give files away keeps them; false then.
fn give(
    stat: &Stat,
    chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
) -> Result<bool, (&'static str, Errno)> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    match chown(Some(uid), Some(gid)) {
        Ok(()) => Ok(true),
        // One of our groups, perhaps. EINVAL: an owner that this user namespace does not know.
        Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP) => {
            let _ = chown(None, Some(gid));
            Ok(false)
        }
        Err(errno) => Err(("keeping owner of", errno)),
    }
}

/// Copies extended attributes, of which ACLs and capabilities are some. False if one is not offered
/// there, or not to us.
fn copy_attributes(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&CStr, &mut [u8]) -> Result<usize, Errno>,
    set: impl Fn(&CStr, &[u8]) -> Result<(), Errno>,
) -> Result<bool, Errno> {
    let (mut few, mut many) = ([0; 512], Vec::new());
    let names = match read(&mut few, &mut many, &list) {
        Ok(names) => names,
        // No attributes on this file system, or none for us: then there are none to be kept.
        Err(Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => return Ok(true),
        Err(errno) => return Err(errno),
    };
    let mut is_complete = true;
    for name in names.split_inclusive(|&byte| byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        let (mut short, mut long) = ([0; 512], Vec::new());
        let value = match read(&mut short, &mut long, |value| get(name, value)) {
            Ok(value) => value,
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => continue,
            Err(errno) => return Err(errno),
        };
        match set(name, value) {
            Ok(()) => {}
            // Not on that file system, or not for us: security.* and trusted.* are for root.
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::INVAL)
            // Too long for that file system. ext4 says that of its block for attributes as if the
            // disk were full; if it is, the bytes of the next file say so, too.
            | Err(Errno::NOSPC | Errno::RANGE | Errno::TOOBIG | Errno::NAMETOOLONG) => {
                is_complete = false;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(is_complete)
}

/// Reads into a small buffer, and if that is not enough into one that always is (xattr(7)).
fn read<'b>(
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

/// A path to a name in an open folder, for calls that know no others. No link on it can be put in
/// the way: the first part is the kernel's.
fn path(folder: BorrowedFd<'_>, name: &CStr) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(name.to_bytes());
    if std::path::Path::new(name).is_absolute() {
        return PathBuf::from(name);
    }
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name)
}

/// The times of a file.
pub(super) fn times(stat: &Stat) -> Timestamps {
    let time = |tv_sec, nanoseconds: u64| Timespec { tv_sec, tv_nsec: nanoseconds.cast_signed() };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// What new entries of a folder get from it.
pub(super) fn heritage(folder: BorrowedFd<'_>) -> Heritage {
    let mut value = [0; 1];
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let acl = match rustix::fs::getxattr(&path, c"system.posix_acl_default", &mut value[..]) {
        Ok(_) | Err(Errno::RANGE) => true,
        Err(_) => false,
    };
    let group = rustix::fs::fstat(folder).is_ok_and(|stat| stat.st_mode & 0o2000 != 0);
    Heritage { acl, group }
}
