//! What a file has besides its bytes: owner, attributes, mode and times, given in this order, for
//! each takes away from those before it: a change of owner the set-user-id bit and capabilities,
//! every change the times.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod,
    fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, futimens, lgetxattr, llistxattr,
    lsetxattr, utimensat,
};
use rustix::io::Errno;

use crate::error::CopyError;
use crate::folder::{Folder, Heritage};
use crate::options::Settings;
use crate::outcome::CopyTotals;
use crate::permissions;
use underpass_engine::hint::Action;

/// How a new file is to be made, and what is to be done about it afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// The permissions with which it is made.
    pub(crate) first: u32,
    /// The permissions that it has to have.
    mode: u32,
    /// The same without the ACL of its original.
    without_acl: u32,
    /// Whether it would belong to somebody else.
    is_foreign: bool,
    /// Whether its permissions have to be set again.
    is_other: bool,
}

impl Manner {
    /// How to make a copy of what has these facts, in such a folder.
    pub(crate) fn new(
        settings: &Settings<'_>,
        from: BorrowedFd<'_>,
        stat: &Stat,
        heritage: Heritage,
    ) -> Self {
        let without_acl = settings.mode(permissions::without_acl(from, stat.st_mode));
        // The permissions of a device or FIFO say nothing about bytes that come from it.
        let is_stream = FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile;
        let mask = if is_stream && !settings.preserve { settings.umask } else { 0 };
        let without_acl = without_acl & !mask;
        let mode = if settings.preserve { settings.mode(stat.st_mode) } else { without_acl };
        let is_foreign =
            settings.preserve && (heritage.group || (stat.st_uid, stat.st_gid) != settings.owner);
        let is_other = is_foreign || mode & 0o6000 != 0 || (settings.preserve && heritage.acl);
        // Until it has its owner, nobody else is to open it.
        let first = without_acl & if is_foreign { 0o700 } else { 0o1777 };
        Self { first, mode, without_acl, is_foreign, is_other }
    }
}

/// What a copy lacks, although it was asked for: what was being done, and the first refusal.
///
/// The copy stays, as its bytes are right; the command fails.
#[derive(Debug, Default)]
pub(crate) struct Lacking(Option<(Action, Errno)>);

impl Lacking {
    /// Remembers what was refused first.
    fn note<T>(&mut self, action: impl Into<Action>, outcome: Result<T, Errno>) -> Option<T> {
        match outcome {
            Ok(done) => Some(done),
            Err(errno) => {
                self.0.get_or_insert((action.into(), errno));
                None
            }
        }
    }

    /// The same as a failure, if anything was refused.
    pub(crate) fn failure(self, path: impl FnOnce() -> PathBuf) -> Option<CopyError> {
        let (action, errno) = self.0?;
        Some(CopyError::Path { action, path: path(), source: errno.into() })
    }
}

/// Gives a copy all that its original has; a file that was there before keeps its mode.
pub(crate) fn keep(
    settings: &Settings<'_>,
    ends: (BorrowedFd<'_>, BorrowedFd<'_>),
    stat: &Stat,
    manner: Manner,
    (is_new, heritage): (bool, Heritage),
    totals: &mut CopyTotals,
) -> Lacking {
    let (from, to) = ends;
    let mut lacking = Lacking::default();
    let (mut mode, mut is_other) = (manner.mode, manner.is_other || !is_new);
    if settings.preserve {
        let may_give = settings.may_give_files_away();
        if (manner.is_foreign || !is_new)
            && !give(stat, may_give, &mut lacking, |uid, gid| fchown(to, uid, gid))
        {
            totals.without_owner += 1;
            mode &= 0o1777;
        }
        if heritage.acl {
            // What it got from the folder; most often nothing else is to be there.
            let _ = fremovexattr(to, c"system.posix_acl_access");
        }
        let copied = copy_open_attributes(from, to, mode, &mut lacking);
        totals.without_attributes += u64::from(!copied.is_complete);
        if !copied.is_complete {
            mode &= manner.without_acl;
        }
        is_other |= copied.was_opened;
    }
    if is_other && (is_new || settings.preserve) {
        lacking.note("keeping mode of", fchmod(to, Mode::from_raw_mode(mode)));
    }
    match futimens(to, &times(stat)) {
        // A file that was there and belongs to somebody else: nobody has asked for its times.
        Err(Errno::PERM | Errno::ACCESS) if !is_new && !settings.preserve => {}
        set => _ = lacking.note("keeping times of", set),
    }
    lacking
}

/// The same for what cannot be opened: links, devices, FIFOs, sockets.
pub(crate) fn keep_by_name(
    settings: &Settings<'_>,
    (from, old): (BorrowedFd<'_>, &CStr),
    (to, new): (BorrowedFd<'_>, &CStr),
    stat: &Stat,
    totals: &mut CopyTotals,
) -> Lacking {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let mut lacking = Lacking::default();
    if settings.preserve {
        let may_give = settings.may_give_files_away();
        let is_owned =
            give(stat, may_give, &mut lacking, |uid, gid| chownat(to, new, uid, gid, flags));
        totals.without_owner += u64::from(!is_owned);
        let (from, to) = (path(from, old), path(to, new));
        let copied = copy_attributes(
            |list| llistxattr(&from, list),
            |name, value| lgetxattr(&from, name, value),
            |name, value| lsetxattr(&to, name, value, XattrFlags::empty()),
            || Err(Errno::ACCESS),
            &mut lacking,
        );
        totals.without_attributes += u64::from(!copied.is_complete);
    }
    lacking.note("keeping times of", utimensat(to, new, &times(stat), flags));
    lacking
}

/// Everything in a folder is done: gives it what its original has. Returns whether owner and
/// attributes could be kept, and what else could not.
pub(crate) fn finish_folder(
    settings: &Settings<'_>,
    folder: &Folder,
    stat: &Stat,
) -> (bool, bool, Lacking) {
    let (from, to) = (folder.source.as_fd(), folder.target.as_fd());
    let mut lacking = Lacking::default();
    let without_acl = settings.mode(permissions::without_acl(from, stat.st_mode));
    let mut mode = settings.mode(stat.st_mode);
    let (mut has_owner, mut has_attributes) = (true, true);
    if settings.preserve {
        let may_give = settings.may_give_files_away();
        has_owner = give(stat, may_give, &mut lacking, |uid, gid| fchown(to, uid, gid));
        if !has_owner {
            mode &= 0o1777;
        }
        has_attributes = copy_open_attributes(from, to, mode, &mut lacking).is_complete;
        if !has_attributes {
            mode &= without_acl;
        }
    } else {
        mode = without_acl | if folder.heritage.group { 0o2000 } else { 0 };
    }
    lacking.note("keeping mode of", fchmod(to, Mode::from_raw_mode(mode)));
    lacking.note("keeping times of", futimens(to, &times(stat)));
    (has_owner, has_attributes, lacking)
}

/// Gives a copy the owner of its original; false if that could not be. Who may not give files away
/// keeps them, which is no failure.
fn give(
    stat: &Stat,
    may_give: bool,
    lacking: &mut Lacking,
    chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
) -> bool {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    match chown(Some(uid), Some(gid)) {
        Ok(()) => true,
        // One of our groups, perhaps. EINVAL: an owner that this user namespace does not know.
        Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP) if !may_give => {
            let _ = chown(None, Some(gid));
            false
        }
        Err(errno) => {
            let _ = chown(None, Some(gid));
            lacking.note("keeping owner of", Err::<(), _>(errno));
            false
        }
    }
}

/// What became of attributes.
struct Copied {
    /// Whether all of them are there.
    is_complete: bool,
    /// Whether the copy was made writable for them.
    was_opened: bool,
}

/// The same as [`copy_attributes`], between open files.
fn copy_open_attributes(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    mode: u32,
    lacking: &mut Lacking,
) -> Copied {
    copy_attributes(
        |list| flistxattr(from, list),
        |name, value| fgetxattr(from, name, value),
        |name, value| fsetxattr(to, name, value, XattrFlags::empty()),
        || fchmod(to, Mode::from_raw_mode(mode & 0o777 | 0o200)),
        lacking,
    )
}

/// Copies extended attributes, of which ACLs and capabilities are some.
///
/// The kernel takes attributes of users only for what its owner may write to, whatever the
/// descriptor allows: `open` lets the owner do so until the mode is set.
///
/// An ACL that could not be kept is a failure, as it decides who may do what. Other attributes are
/// not: many file systems do not take them, and some only from root.
fn copy_attributes(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&CStr, &mut [u8]) -> Result<usize, Errno>,
    set: impl Fn(&CStr, &[u8]) -> Result<(), Errno>,
    open: impl Fn() -> Result<(), Errno>,
    lacking: &mut Lacking,
) -> Copied {
    let mut copied = Copied { is_complete: true, was_opened: false };
    let (mut few, mut many) = ([0; 512], Vec::new());
    let names = match read(&mut few, &mut many, &list) {
        Ok(names) => names,
        // No attributes on this file system, or none for us: then there are none to be kept.
        Err(Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => return copied,
        Err(errno) => {
            lacking.note("reading the attributes for", Err::<(), _>(errno));
            return Copied { is_complete: false, ..copied };
        }
    };
    for name in names.split_inclusive(|&byte| byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        let (mut short, mut long) = ([0; 512], Vec::new());
        let set_again = |value: &[u8]| match set(name, value) {
            Err(Errno::ACCESS) => match open() {
                Ok(()) => (true, set(name, value)),
                Err(_) => (false, Err(Errno::ACCESS)),
            },
            outcome => (false, outcome),
        };
        let (was_opened, outcome) = match read(&mut short, &mut long, |value| get(name, value)) {
            // Somebody has removed it meanwhile.
            Err(Errno::NODATA) => continue,
            Ok(value) => set_again(value),
            Err(errno) => (false, Err(errno)),
        };
        copied.was_opened |= was_opened;
        let Err(errno) = outcome else { continue };
        copied.is_complete = false;
        if name.to_bytes().starts_with(b"system.posix_acl_") {
            lacking.note("keeping ACL of", Err::<(), _>(errno));
        } else if !is_refusal(errno) {
            lacking.note("keeping attributes of", Err::<(), _>(errno));
        }
    }
    copied
}

/// Whether a file system, or the kernel for this user, does not take an attribute.
fn is_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        // Not on that file system, or not for us: security.* and trusted.* are for root.
        Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::INVAL
            // Too long for that file system. ext4 says that of its block for attributes as if the
            // disk were full; if it is, the bytes of the next file say so, too.
            | Errno::NOSPC | Errno::RANGE | Errno::TOOBIG | Errno::NAMETOOLONG
    )
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
pub fn times(stat: &Stat) -> Timestamps {
    let time = |tv_sec, nanoseconds: u64| Timespec { tv_sec, tv_nsec: nanoseconds.cast_signed() };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// What new entries of a folder get from it.
pub(crate) fn heritage(folder: BorrowedFd<'_>) -> Heritage {
    let mut value = [0; 1];
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let acl = match rustix::fs::getxattr(&path, c"system.posix_acl_default", &mut value[..]) {
        Ok(_) | Err(Errno::RANGE) => true,
        Err(_) => false,
    };
    let group = rustix::fs::fstat(folder).is_ok_and(|stat| stat.st_mode & 0o2000 != 0);
    Heritage { acl, group }
}
