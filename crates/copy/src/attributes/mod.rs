//! Attributes of files: owner, extended attributes, mode and times. They are set in this
//! order, for each change undoes others: a change of owner clears the set-user-id bit and
//! capabilities, and every change sets the times.

mod extended;
pub(crate) mod inherited;
mod missing;
pub(crate) mod named;
pub(crate) mod permissions;
pub(crate) mod resumed;

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, chmod, chownat, fchmod,
    fchown, fstat, futimens, openat, utimensat,
};
use rustix::io::Errno;
use underpass_engine::atomic_file::{WRITABLE_BY_OTHERS, remove_attribute, try_without_acl};
use underpass_engine::{is_file, mtime};

use crate::attributes::extended::{AttrEnds, copy_attributes};
use crate::attributes::inherited::InheritedAttrs;
use crate::attributes::missing::MissingAttrs;
use crate::attributes::named::{NamedAt, remove_attribute_of};
use crate::options::Settings;
use crate::options::preserve::PreserveMode;
use crate::outcome::CopyTotals;

/// The modes of a new file: the one that it is created with, and the one that it gets once it is
/// complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileModes {
    /// The mode that it is created with.
    pub(crate) initial: u32,
    /// The mode that it gets in the end.
    mode: u32,
    /// The mode that it gets in the end without the ACL of its original.
    without_acl: u32,
    /// Whether its owner or group has to be changed.
    needs_chown: bool,
    /// Whether its mode has to be set again in the end.
    needs_chmod: bool,
    /// Why the ACL of the original could not be read; the group gets no permissions then.
    acl_error: Option<Errno>,
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
        let (without_acl, acl_error) = group_mode(settings, from, stat);
        // The permissions of a device or FIFO say nothing about bytes that come from it.
        let is_stream = !is_file(stat);
        let keeps_all = settings.preserve.keeps_mode();
        let mask = if is_stream && !keeps_all { settings.umask } else { 0 };
        // The sticky bit of a file means nothing, and is kept only if the whole mode is.
        let sticky = if keeps_all { 0 } else { 0o1000 };
        let without_acl = without_acl & !mask & !sticky;
        let mode = if keeps_all { settings.mode(stat.st_mode) } else { without_acl };
        let needs_chown = settings.preserve.ownership
            && (inherited.group || (stat.st_uid, stat.st_gid) != settings.owner);
        let needs_chmod = needs_chown || mode & 0o6000 != 0 || (keeps_all && inherited.acl);
        // Until it has its owner, no other user may open it.
        let initial = without_acl & if needs_chown { 0o700 } else { 0o1777 };
        // A copied ACL sets the mode, but the original may have lost its ACL by then.
        let needs_chmod = needs_chmod || mode != initial & !settings.process_umask;
        Self { initial, mode, without_acl, needs_chown, needs_chmod, acl_error }
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
        // The owner must be able to resume a part.
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

/// Returns the mode that the copy of an open entry has without its ACL, and the reason why the ACL
/// could not be read, if the copy lacks permissions for it. A copied ACL is read again.
fn group_mode(settings: &Settings<'_>, from: BorrowedFd<'_>, stat: &Stat) -> (u32, Option<Errno>) {
    match try_without_acl(from, stat.st_mode) {
        Ok(mode) => (settings.mode(mode), None),
        Err(errno) => {
            let lacks = settings.preserve.mode == PreserveMode::Permissions;
            (settings.mode(stat.st_mode & !0o070), Some(errno).filter(|_| lacks))
        }
    }
}

/// Gives a copy the attributes of its original. `inherited` are the attributes that a new file has
/// from its folder; `None` for a file that existed before, which keeps its mode.
pub(crate) fn keep(
    settings: &Settings<'_>,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    stat: &Stat,
    modes: FileModes,
    inherited: Option<InheritedAttrs>,
    totals: &mut CopyTotals,
) -> MissingAttrs {
    let mut missing = MissingAttrs::of_acl(modes.acl_error.filter(|_| inherited.is_some()));
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
        // An existing file of another user: keeping its times was not requested.
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
            mode &= permissions::without_acl_by_name(original, mode).unwrap_or(!0o070);
        }
    }
    if keeps_mode {
        // The change of owner has cleared set-user-id.
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

/// Gives a new folder its permissions before its name, so that it has them if this process is killed
/// before everything in it is copied: to a later run it is a folder like any other. Others may not
/// write to it yet. Nothing is done if the later run sets the mode, or if the folder is to have
/// another owner, before which no other user may look in. A refusal is reported in the end.
pub(crate) fn open_to_others(
    settings: &Settings<'_>,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    inherited: InheritedAttrs,
) {
    let preserve = settings.preserve;
    if settings.resume || preserve.ownership || preserve.keeps_mode() {
        return;
    }
    let Ok(stat) = fstat(from) else { return };
    let (without_acl, _) = group_mode(settings, from, &stat);
    let mode = folder_mode(without_acl, to, inherited) & !WRITABLE_BY_OTHERS | 0o700;
    let _ = fchmod(to, Mode::from_raw_mode(mode));
}

/// Returns the mode of a new folder that does not keep the whole mode of its original.
fn folder_mode(without_acl: u32, folder: BorrowedFd<'_>, inherited: InheritedAttrs) -> u32 {
    let allowed = if inherited.acl { permissions::inherited_by(folder) } else { 0o777 };
    without_acl & (0o1000 | allowed) | if inherited.group { 0o2000 } else { 0 }
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
    let (without_acl, acl_error) = group_mode(settings, from, stat);
    let mut missing = MissingAttrs::of_acl(acl_error);
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
        // An ACL that the original lacks would grant rights that the original does not.
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
        mode = folder_mode(without_acl, to, inherited);
    }
    if !is_whole {
        // A later run must be able to create the missing entries.
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
        // The group may be one of ours. EINVAL: the owner has no id in this user namespace.
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

/// Returns the times of a file, for futimens(2).
#[must_use]
pub fn times(stat: &Stat) -> Timestamps {
    let (tv_sec, tv_nsec) = (stat.st_atime, stat.st_atime_nsec.cast_signed());
    Timestamps { last_access: Timespec { tv_sec, tv_nsec }, last_modification: mtime(stat) }
}
