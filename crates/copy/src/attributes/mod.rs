//! Attributes of files: owner, extended attributes, mode and times. They are set in this
//! order, for each change undoes others: a change of owner clears the set-user-id bit and
//! capabilities, and every change sets the times.

pub(crate) mod inherited;
pub(crate) mod named;
pub mod permissions;
pub(crate) mod resumed;

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, chmod,
    chownat, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat, futimens, lgetxattr,
    llistxattr, lsetxattr, openat, utimensat,
};
use rustix::io::Errno;
use underpass_engine::atomic_file::remove_attribute;
use underpass_engine::hint::Action;
use underpass_engine::{is_file, mtime};

use crate::attributes::inherited::InheritedAttrs;
use crate::attributes::named::{NamedAt, remove_attribute_of};
use crate::error::CopyError;
use crate::options::Settings;
use crate::options::preserve::{Preserve, PreserveMode};
use crate::outcome::CopyTotals;

/// The modes of a new file: the one that it is made with, and the one that it gets when it is
/// whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileModes {
    /// The mode that it is made with.
    pub(crate) initial: u32,
    /// The mode that it gets in the end.
    mode: u32,
    /// The mode that it gets in the end without the ACL of its original.
    without_acl: u32,
    /// Whether its owner or group has to be changed.
    needs_chown: bool,
    /// Whether its mode has to be set again in the end.
    needs_chmod: bool,
}

impl FileModes {
    /// Returns the modes of the copy of an entry with these properties, in a folder that hands on
    /// `inherited`.
    pub(crate) fn new(
        settings: &Settings<'_>,
        from: BorrowedFd<'_>,
        stat: &Stat,
        inherited: InheritedAttrs,
    ) -> Self {
        let without_acl = settings.mode(permissions::without_acl(from, stat.st_mode));
        // The permissions of a device or FIFO say nothing about bytes that come from it.
        let is_stream = !is_file(stat);
        let keeps_all = settings.preserve.keeps_mode();
        let mask = if is_stream && !keeps_all { settings.umask } else { 0 };
        // The sticky bit of a file means nothing, and is kept with everything else alone.
        let sticky = if keeps_all { 0 } else { 0o1000 };
        let without_acl = without_acl & !mask & !sticky;
        let mode = if keeps_all { settings.mode(stat.st_mode) } else { without_acl };
        let needs_chown = settings.preserve.ownership
            && (inherited.group || (stat.st_uid, stat.st_gid) != settings.owner);
        let needs_chmod = needs_chown || mode & 0o6000 != 0 || (keeps_all && inherited.acl);
        // Until it has its owner, no other user may open it.
        let initial = without_acl & if needs_chown { 0o700 } else { 0o1777 };
        let needs_chmod = needs_chmod || initial & settings.process_umask != 0;
        Self { initial, mode, without_acl, needs_chown, needs_chmod }
    }

    /// Takes account of the properties that a new file got in a folder: another owner where the
    /// file system chooses it, as with the mount option `grpid`, or another mode if it is a part.
    pub(crate) fn adjusted_to(
        mut self,
        settings: &Settings<'_>,
        stat: &Stat,
        made: BorrowedFd<'_>,
        folder: BorrowedFd<'_>,
        inherited: InheritedAttrs,
    ) -> Result<Self, Errno> {
        if !settings.resume && (!settings.preserve.ownership || self.needs_chown) {
            return Ok(self);
        }
        let there = fstat(made)?;
        let has_owner = (there.st_uid, there.st_gid) == (stat.st_uid, stat.st_gid);
        if settings.preserve.ownership && !has_owner {
            (self.needs_chown, self.needs_chmod) = (true, true);
            self.initial &= 0o700;
        }
        let mode = there.st_mode & 0o7777;
        if settings.resume && !inherited.acl {
            self.needs_chmod |= mode != self.initial & !settings.process_umask;
        } else if settings.resume && !settings.preserve.keeps_mode() {
            // The kernel did not apply the ACL to all of the mode: a part is made with less.
            self.mode &= permissions::inherited_by(folder);
            self.needs_chmod |= mode != self.mode;
        }
        // The owner has to go on with a part.
        let allowed = self.initial | 0o600;
        if mode & !allowed != 0 {
            // A mode that cannot be set now cannot be set in the end either.
            let _ = fchmod(made, Mode::from_raw_mode(mode & allowed));
        }
        Ok(self)
    }

    /// Takes account of a file that has the mode, and perhaps the group, of the one that it
    /// replaces.
    pub(crate) fn taken_over(
        self,
        settings: &Settings<'_>,
        made: BorrowedFd<'_>,
    ) -> Result<Self, Errno> {
        let mode = fstat(made)?.st_mode & 0o7777;
        let needs_chown = settings.preserve.ownership;
        Ok(Self { mode, without_acl: mode, needs_chown, needs_chmod: false, ..self })
    }
}

/// The attributes that a copy lacks although they were asked for, by the first refused action.
///
/// The copy stays, as its bytes are right; the command fails.
#[derive(Debug, Default)]
pub(crate) struct MissingAttrs(Option<(Action, Errno)>);

impl MissingAttrs {
    /// Remembers the first refusal.
    fn record<T>(&mut self, action: impl Into<Action>, outcome: Result<T, Errno>) -> Option<T> {
        match outcome {
            Ok(done) => Some(done),
            Err(errno) => {
                self.0.get_or_insert((action.into(), errno));
                None
            }
        }
    }

    /// Returns the refusal as an error, if there was one.
    pub(crate) fn failure(self, path: impl FnOnce() -> PathBuf) -> Option<CopyError> {
        let (action, errno) = self.0?;
        Some(CopyError::Path { action, path: path(), source: errno.into() })
    }
}

/// Gives a copy the attributes of its original. `inherited` are the attributes that a new file has
/// from its folder; `None` for a file that was there before, which keeps its mode.
pub(crate) fn keep(
    settings: &Settings<'_>,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    stat: &Stat,
    modes: FileModes,
    inherited: Option<InheritedAttrs>,
    totals: &mut CopyTotals,
) -> MissingAttrs {
    let mut missing = MissingAttrs::default();
    let is_new = inherited.is_some();
    let (mut mode, mut needs_chmod) = (modes.mode, modes.needs_chmod || !is_new);
    let preserve = settings.preserve;
    if preserve.ownership
        && (modes.needs_chown || !is_new)
        && !give_owner(stat, settings.may_give_files_away(), &mut missing, |uid, gid| {
            fchown(to, uid, gid)
        })
    {
        totals.without_owner += 1;
        mode &= 0o1777;
    }
    if preserve.keeps_mode() && inherited.is_none_or(|inherited| inherited.acl) {
        // The ACL that it got from the folder, or had before; most originals have none.
        let removed = remove_attribute(to, c"system.posix_acl_access");
        missing.record("keeping mode of", removed);
    }
    if preserve.keeps_attributes() {
        let ends = AttrEnds::Open { from, to, mode };
        let copied = copy_attributes(preserve, &ends, &mut missing);
        totals.without_attributes += u64::from(!copied.is_complete);
        if copied.lacks_acl {
            mode &= modes.without_acl;
        }
        needs_chmod |= copied.was_opened;
    }
    let sets_mode = is_new || settings.attributes_only && preserve.mode != PreserveMode::Nothing;
    if needs_chmod && (sets_mode || preserve.keeps_mode()) {
        missing.record("keeping mode of", fchmod(to, Mode::from_raw_mode(mode)));
    }
    if !preserve.keeps_times_of_bytes(stat) {
        return missing;
    }
    match futimens(to, &times(stat)) {
        // A file that was there and belongs to another user: its times were not asked for.
        Err(Errno::PERM | Errno::ACCESS) if !is_new && !preserve.keeps_mode() => {}
        set => _ = missing.record("keeping times of", set),
    }
    missing
}

/// Does the same as [`keep`] for entries that cannot be opened: links, devices, FIFOs and sockets.
pub(crate) fn keep_by_name(
    settings: &Settings<'_>,
    original: NamedAt<'_>,
    copy: NamedAt<'_>,
    stat: &Stat,
    totals: &mut CopyTotals,
) -> MissingAttrs {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let mut missing = MissingAttrs::default();
    let preserve = settings.preserve;
    let mut mode = settings.mode(stat.st_mode);
    if preserve.ownership {
        let may_give = settings.may_give_files_away();
        let is_owned = give_owner(stat, may_give, &mut missing, |uid, gid| {
            chownat(copy.folder, copy.name, uid, gid, flags)
        });
        totals.without_owner += u64::from(!is_owned);
        mode &= if is_owned { 0o7777 } else { 0o1777 };
    }
    let (from, to) = (original.path(), copy.path());
    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    let keeps_mode = preserve.keeps_mode() && !is_link;
    if keeps_mode {
        // The ACL that it got from the folder.
        missing.record("keeping mode of", remove_attribute_of(&to, c"system.posix_acl_access"));
    }
    if preserve.keeps_attributes() {
        let ends = AttrEnds::Named { from: &from, to: &to };
        let copied = copy_attributes(preserve, &ends, &mut missing);
        totals.without_attributes += u64::from(!copied.is_complete);
        if keeps_mode && copied.lacks_acl {
            mode &= permissions::without_acl_by_name(original, mode);
        }
    }
    if keeps_mode {
        // A change of owner has taken set-user-id away.
        missing.record("keeping mode of", set_mode_of(copy, mode));
    }
    if preserve.keeps_times() {
        missing.record("keeping times of", utimensat(copy.folder, copy.name, &times(stat), flags));
    }
    missing
}

/// Sets the mode of an entry that cannot be opened, and never that of the target of a link.
pub(crate) fn set_mode_of(entry: NamedAt<'_>, mode: u32) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat(entry.folder, entry.name, flags, Mode::empty())?;
    if fstat(&found)?.st_mode & 0o7777 == mode & 0o7777 {
        return Ok(());
    }
    chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::from_raw_mode(mode & 0o7777))
}

/// The attributes of a folder that its copy has.
pub(crate) struct FinishedFolder {
    pub(crate) has_owner: bool,
    pub(crate) has_attributes: bool,
    /// The other attributes that could not be kept.
    pub(crate) missing: MissingAttrs,
}

/// Gives a folder the attributes of its original, once everything in it is copied.
pub(crate) fn finish_folder(
    settings: &Settings<'_>,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    is_new: bool,
    inherited: InheritedAttrs,
    stat: &Stat,
    is_whole: bool,
) -> FinishedFolder {
    let mut missing = MissingAttrs::default();
    let without_acl = settings.mode(permissions::without_acl(from, stat.st_mode));
    let mut mode = settings.mode(stat.st_mode);
    let (mut has_owner, mut has_attributes) = (true, true);
    let preserve = settings.preserve;
    if preserve.ownership {
        let may_give = settings.may_give_files_away();
        has_owner = give_owner(stat, may_give, &mut missing, |uid, gid| fchown(to, uid, gid));
        if !has_owner {
            mode &= 0o1777;
        }
    }
    if preserve.keeps_mode() && (!is_new || inherited.acl) {
        // An ACL that the original does not have would grant rights that it does not grant.
        for name in [c"system.posix_acl_default", c"system.posix_acl_access"] {
            missing.record("keeping mode of", remove_attribute(to, name));
        }
    }
    if preserve.keeps_attributes() {
        let ends = AttrEnds::Open { from, to, mode };
        let copied = copy_attributes(preserve, &ends, &mut missing);
        has_attributes = copied.is_complete;
        if copied.lacks_acl {
            mode &= without_acl;
        }
    }
    if !preserve.keeps_mode() {
        let allowed = if inherited.acl { permissions::inherited_by(to) } else { 0o777 };
        mode = without_acl & (0o1000 | allowed) | if inherited.group { 0o2000 } else { 0 };
    }
    if !is_whole {
        // A later run has to make the missing entries.
        mode |= 0o700;
    }
    if is_new || preserve.keeps_mode() || settings.resume {
        missing.record("keeping mode of", fchmod(to, Mode::from_raw_mode(mode)));
    }
    if preserve.keeps_times_of_folder(is_new || settings.resume) && is_whole {
        missing.record("keeping times of", futimens(to, &times(stat)));
    }
    FinishedFolder { has_owner, has_attributes, missing }
}

/// Gives a copy the owner of its original, and returns whether that worked. It is no failure if
/// this user may not give files away.
fn give_owner(
    stat: &Stat,
    may_give: bool,
    missing: &mut MissingAttrs,
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
            missing.record("keeping owner of", Err::<(), _>(errno));
            false
        }
    }
}

/// The outcome of copying extended attributes.
struct AttrCopy {
    /// Whether the copy has all of them.
    is_complete: bool,
    /// Whether the copy may lack an ACL, so that its group must not get the permissions of the
    /// mask.
    lacks_acl: bool,
    /// Whether the copy was made writable for them, and its mode has to be set again.
    was_opened: bool,
}

/// An original and its copy, as the calls for extended attributes (xattr(7)) name them.
enum AttrEnds<'a> {
    /// Two open files, and the mode that the copy is to have in the end.
    Open { from: BorrowedFd<'a>, to: BorrowedFd<'a>, mode: u32 },
    /// Paths to entries that cannot be opened. Links are not followed.
    Named { from: &'a Path, to: &'a Path },
}

impl AttrEnds<'_> {
    fn list(&self, names: &mut [u8]) -> Result<usize, Errno> {
        match *self {
            Self::Open { from, .. } => flistxattr(from, names),
            Self::Named { from, .. } => llistxattr(from, names),
        }
    }

    fn get(&self, name: &CStr, value: &mut [u8]) -> Result<usize, Errno> {
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
/// The kernel takes user attributes only for a file that its owner may write to, even by a writable
/// descriptor, so it is made writable until its mode is set.
///
/// An ACL that cannot be kept is a failure, as it grants and refuses access. Other attributes are
/// not: many file systems do not take them, and some only from root.
fn copy_attributes(
    preserve: Preserve,
    ends: &AttrEnds<'_>,
    missing: &mut MissingAttrs,
) -> AttrCopy {
    let mut copied = AttrCopy { is_complete: true, lacks_acl: false, was_opened: false };
    let (mut few, mut many) = ([0; 512], Vec::new());
    let names = match read(&mut few, &mut many, |names| ends.list(names)) {
        Ok(names) => names,
        // No attributes on this file system: then there are none to be kept.
        Err(Errno::OPNOTSUPP) => return copied,
        Err(Errno::ACCESS | Errno::PERM) => {
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
            // Each file on NFSv4 has one.
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
        } else if !is_refusal(errno) {
            missing.record("keeping attributes of", Err::<(), _>(errno));
        }
    }
    copied
}

/// Returns whether a file system, or the kernel for this user, does not take an attribute.
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

/// Returns the times of a file, for futimens(2).
#[must_use]
pub fn times(stat: &Stat) -> Timestamps {
    let (tv_sec, tv_nsec) = (stat.st_atime, stat.st_atime_nsec.cast_signed());
    Timestamps { last_access: Timespec { tv_sec, tv_nsec }, last_modification: mtime(stat) }
}
