//! Changes to files and folders, made on a helper thread.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{
    Access, AtFlags, FileType, Mode, Stat, accessat, fstat, fsync, mkdirat, unlinkat,
};
use rustix::io::Errno;
use underpass_engine::atomic_file::{AtomicFile, Existing, only_adds, stat_entry, sync_folder};
use underpass_engine::{FileId, Report, Version};

use crate::auth::Right;
use crate::changes::checks::{
    c_name, check_contents, check_depth, check_parent, find_existing, fits, hidden, hidden_beneath,
    no_folder, open_dest, parent_of, root_itself,
};
use crate::changes::dav::tags::TagConditions;
use crate::changes::dest_entry::{DestEntry, Renaming, is_other_spelling, remove_checked, respell};
use crate::changes::hidden_name::hidden_name;
use crate::changes::refusal::{ChangeRefusal, Result};
use crate::changes::removal::{self, CopiedEntries};
use crate::changes::tree::{self, TreeCopy};
use crate::files::root::{is_incomplete, is_local, last_name, split};
use crate::server::sites::names_lock::NamesGuard;
use crate::server::sites::site::Site;
use underpass_protocol::request::destination::{Depth, Destination};

/// A change that the access rules allow.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) what: ChangeKind,
    /// The path that is changed or copied.
    pub(crate) path: Vec<u8>,
    /// Whether the path has to be a folder.
    pub(crate) is_folder: bool,
    /// The user, if there is one.
    pub(crate) user: Option<Arc<str>>,
    /// The version for which the client's conditions held.
    pub(crate) expected: Option<Version>,
    /// The entity tags for which they held.
    pub(crate) tags: TagConditions,
}

/// The kind of a change.
#[derive(Debug)]
pub(crate) enum ChangeKind {
    Delete(Depth),
    MakeFolder,
    Move(Destination, Depth),
    Copy(Destination, Depth),
}

impl ChangeKind {
    /// Returns whether the change removes the entry from its path.
    pub(crate) fn leaves(&self) -> bool {
        matches!(self, Self::Delete(_) | Self::Move(..))
    }
}

/// The result of a change.
#[derive(Debug)]
pub(crate) struct Changed {
    /// Whether the change made a new entry.
    pub(crate) is_new: bool,
    /// The report of the moved bytes, if there were any.
    pub(crate) report: Report,
}

impl Change {
    /// Makes the change. It may wait for the disk, and its time grows with the bytes to copy.
    pub(crate) fn run(&self, site: &Site) -> Result<Changed> {
        let made = match &self.what {
            ChangeKind::Delete(depth) => self.delete(site, *depth),
            ChangeKind::MakeFolder => self.make_folder(site),
            ChangeKind::Move(to, depth) => self.relocate(site, to, *depth),
            ChangeKind::Copy(to, depth) => self.copy(site, to, *depth),
        };
        // A failed change may have been made in part.
        site.shared.names_changed();
        made
    }

    fn delete(&self, site: &Site, depth: Depth) -> Result<Changed> {
        let (folder, name, stat) = self.find(site)?;
        check_depth(&stat, depth)?;
        self.check_hidden(site, &stat)?;
        check_contents(site, &folder, &name, &stat, &self.path, None)?;
        if tree::kind(&stat) == FileType::Directory {
            let is_hidden = hidden_beneath(site, &self.path);
            let names = self.hold_names(site, false)?;
            let on_begun = || {
                site.shared.names_changed();
                // Other requests need not wait for the end.
                drop(names);
            };
            let removed = remove_checked(&folder, &name, &stat, &is_hidden, on_begun);
            removed.map_err(|refusal| refusal.beneath(&self.path))?;
        } else {
            let _names = self.hold_names(site, false)?;
            self.check_again(&folder, &name)?;
            unlinkat(&folder, &name, AtFlags::empty())?;
        }
        sync(site, &folder)?;
        Ok(Changed { is_new: false, report: Report::default() })
    }

    fn make_folder(&self, site: &Site) -> Result<Changed> {
        if site.root.hides_entry(&self.path, true) {
            return Err(hidden());
        }
        let (folder, name) = parent_of(site, &self.path)?;
        {
            let _names = self.hold_names(site, false)?;
            check_parent(site, &self.path, &folder)?;
            mkdirat(&folder, &name, Mode::from_raw_mode(0o777)).map_err(|errno| match errno {
                Errno::EXIST => ChangeRefusal::new(405, "this name is already taken"),
                errno => ChangeRefusal::at_target(errno),
            })?;
        }
        sync(site, &folder)?;
        Ok(Changed { is_new: true, report: Report::default() })
    }

    fn relocate(&self, site: &Site, to: &Destination, depth: Depth) -> Result<Changed> {
        let (folder, name, stat) = self.find(site)?;
        // Listings show a link to a folder with a slash, and clients keep it in the new name.
        let is_link = self.is_folder && tree::kind(&stat) == FileType::Symlink;
        let to = &Destination { is_folder: to.is_folder && !is_link, ..to.clone() };
        check_depth(&stat, depth)?;
        self.check_hidden(site, &stat)?;
        if let Some(wanted) = self.other_name(to)
            && is_other_spelling(&folder, &name, &stat, &wanted)
        {
            return self.respell(site, to, &folder, &name, &stat, &wanted);
        }
        let is_folder = tree::kind(&stat) == FileType::Directory;
        let mut dest = open_dest(site, to, &stat)?;
        check_contents(site, &folder, &name, &stat, &self.path, Some(&to.path))?;
        if dest.is_folder() {
            // Hidden entries may have appeared in it while the source was checked.
            find_existing(site, to, &mut dest, &stat)?;
        }
        let (mut renaming, mut attempts) = (Renaming::Atomic, 0);
        let given = loop {
            // While a folder moves, no entry may be created in it.
            let _names = self.hold_names(site, is_folder || renaming == Renaming::Checked)?;
            self.check_again(&folder, &name)?;
            self.check_dest(site, &dest)?;
            if dest.existing.is_none() {
                find_existing(site, to, &mut dest, &stat)?;
            }
            self.refuse_own_target(site, &stat, &dest)?;
            match dest.give(is_folder, &folder, &name, renaming) {
                Err(refusal) if renaming.is_refused(&refusal) => renaming = Renaming::Checked,
                Err(refusal) if dest.count_look(&refusal, &mut attempts) && to.may_replace() => {}
                given => break given,
            }
        };
        let (aside, report) = match given {
            Err(refusal) if refusal.is_by(Errno::XDEV) => {
                move_across(self, site, &folder, &name, &stat, (&mut dest, to))?
            }
            Err(refusal) if refusal.is_by(Errno::INVAL) => {
                return Err(ChangeRefusal::new(
                    403,
                    "a folder cannot be moved or copied into itself",
                ));
            }
            renamed => (renamed?, Report::default()),
        };
        let is_new = dest.remove(aside, &hidden_beneath(site, &to.path))?;
        sync(site, &dest.folder)?;
        sync(site, &folder)?;
        Ok(Changed { is_new, report })
    }

    /// Returns the last name of a destination in the same folder.
    fn other_name(&self, to: &Destination) -> Option<CString> {
        let (above, name) = split(&to.path);
        (split(&self.path).0 == above).then(|| c_name(OsStr::from_bytes(name)))
    }

    /// Changes the spelling of a name on a file system for which both are the same.
    fn respell(
        &self,
        site: &Site,
        to: &Destination,
        folder: &OwnedFd,
        name: &CString,
        stat: &Stat,
        wanted: &CStr,
    ) -> Result<Changed> {
        if to.is_folder && tree::kind(stat) != FileType::Directory {
            return Err(no_folder());
        }
        if site.root.hides_entry(&to.path, tree::kind(stat) == FileType::Directory) {
            return Err(hidden());
        }
        check_contents(site, folder, name, stat, &self.path, Some(&to.path))?;
        {
            let _names = self.hold_names(site, true)?;
            self.check_again(folder, name)?;
            check_parent(site, &to.path, folder)?;
            let now = stat_entry(folder, name)?;
            if now.is_none_or(|now| FileId::of(&now) != FileId::of(stat)) {
                return Err(ChangeRefusal::replaced());
            }
            respell(folder, name, wanted)?;
        }
        sync(site, folder)?;
        Ok(Changed { is_new: true, report: Report::default() })
    }

    fn copy(&self, site: &Site, to: &Destination, depth: Depth) -> Result<Changed> {
        let opened = site.root.open_unleased(&self.path);
        let (from, reached) = opened.map_err(ChangeRefusal::of_reading)?;
        // The path may resolve to another one than when the request was checked.
        let source = reached.as_deref().unwrap_or(&self.path);
        if !site.settings.access.can_all(self.user.as_deref(), source, Right::Read) {
            return Err(ChangeRefusal::new(403, "it contains entries that you may not read"));
        }
        let stat = fstat(&from)?;
        self.check(&stat)?;
        let mut dest = open_dest(site, to, &stat)?;
        let place = site.root.place_of(&from).ok();
        let hides = |path: &[u8], is_folder| {
            site.root.hides_reached(path, is_folder, &self.path, place.as_ref())
        };
        let fits = |to: BorrowedFd<'_>, len: u64| fits(site, to, len);
        let mut copying = TreeCopy::new(&hides, &fits, false, site.settings.changes.sync);
        let is_file = match tree::kind(&stat) {
            FileType::RegularFile => true,
            FileType::Directory => false,
            _ => return Err(Errno::NOENT.into()),
        };
        let is_new = if is_file && !dest.is_folder() {
            let name = OsStr::from_bytes(dest.name.to_bytes());
            let new_file = copied(site, &mut copying, &from, &dest.folder, name)?;
            // Others may need two steps, between which no other request may take the name.
            let _names = self.hold_names(site, !is_local(&dest.folder))?;
            self.check_dest(site, &dest)?;
            find_existing(site, to, &mut dest, &stat)?;
            // Another request may have taken the name since.
            new_file.commit(if to.may_replace() { Existing::Replace } else { Existing::Keep })?;
            dest.existing.is_none()
        } else {
            let copy = UnnamedCopy::new(&mut dest)?;
            let folder = &copy.dest.folder;
            if is_file {
                let name = OsStr::from_bytes(copy.name.to_bytes());
                let new_file = copied(site, &mut copying, &from, folder, name)?;
                new_file.commit(Existing::Keep)?;
            } else {
                let contents = (depth == Depth::Infinity).then_some(self.path.as_slice());
                let copied = copying.folder(&from, contents, folder.as_fd(), &copy.name);
                copied.map_err(|refusal| refusal.beneath(&self.path))?;
            }
            let aside = copy.publish(self, site, to, &stat)?;
            dest.remove(aside, &hidden_beneath(site, &to.path))?
        };
        sync(site, &dest.folder)?;
        Ok(Changed { is_new, report: copying.report })
    }

    /// Refuses to put a link in the place of its own target, which would be lost.
    fn refuse_own_target(&self, site: &Site, stat: &Stat, dest: &DestEntry) -> Result<()> {
        let Some(existing) = &dest.existing else { return Ok(()) };
        let is_link = tree::kind(stat) == FileType::Symlink;
        // A link that leads nowhere or out of the root has no target to lose here.
        let target = if is_link { site.root.find(&self.path)? } else { None };
        if target.is_some_and(|target| FileId::of(&target) == FileId::of(existing)) {
            return Err(ChangeRefusal::new(403, "this is the target of the link"));
        }
        Ok(())
    }

    /// Returns the folder of the path, the name in it, and the attributes.
    fn find(&self, site: &Site) -> Result<(OwnedFd, CString, Stat)> {
        let (folder, name) = site.root.parent_of(&self.path)?.ok_or_else(root_itself)?;
        let name = c_name(name);
        let stat = stat_entry(&folder, &name)?.ok_or(Errno::NOENT)?;
        self.check(&stat)?;
        Ok((folder, name, stat))
    }

    /// Refuses an entry that is hidden because of its type.
    fn check_hidden(&self, site: &Site, stat: &Stat) -> Result<()> {
        let is_folder = tree::kind(stat) == FileType::Directory;
        if site.root.hides_entry(&self.path, is_folder) { Err(hidden()) } else { Ok(()) }
    }

    /// Checks that the entry is what the client meant.
    fn check(&self, stat: &Stat) -> Result<()> {
        let kind = tree::kind(stat);
        if self.is_folder && kind == FileType::RegularFile {
            return Err(Errno::NOTDIR.into());
        }
        let is_other = |expected| match kind {
            FileType::RegularFile => expected != Version::from_stat(stat),
            kind => kind == FileType::Directory,
        };
        if self.expected.is_some_and(is_other) {
            return Err(ChangeRefusal::new(412, "the file was changed meanwhile"));
        }
        Ok(())
    }

    /// Locks the names for the change, exclusively if `is_alone` or the change is conditional, and
    /// checks the entity tags that the client expects once more.
    fn hold_names<'s>(&self, site: &'s Site, is_alone: bool) -> Result<NamesGuard<'s>> {
        let is_conditional = self.expected.is_some() || !self.tags.is_empty();
        let names = site.names.hold(is_alone || is_conditional);
        if self.tags.hold(site) {
            Ok(names)
        } else {
            Err(ChangeRefusal::new(412, "the conditions of If no longer hold"))
        }
    }

    /// Checks that the destination is still in the folder that was found by its path. The caller
    /// must hold the names.
    fn check_dest(&self, site: &Site, dest: &DestEntry) -> Result<()> {
        let (ChangeKind::Move(to, _) | ChangeKind::Copy(to, _)) = &self.what else {
            return Ok(());
        };
        check_parent(site, &to.path, &dest.folder)
    }

    /// Checks that the entry with this name is still the one that the client meant, if the request
    /// says which. The caller must hold the names.
    fn check_again(&self, folder: &OwnedFd, name: &CString) -> Result<()> {
        match self.expected {
            Some(_) => self.check(&stat_entry(folder, name)?.ok_or(Errno::NOENT)?),
            None => Ok(()),
        }
    }
}

/// Moves an entry to another file system: copies all of it, gives the copy its name, and removes
/// the original. Returns the hidden name of a folder that was replaced.
fn move_across(
    change: &Change,
    site: &Site,
    folder: &OwnedFd,
    name: &CStr,
    stat: &Stat,
    (dest, to): (&mut DestEntry, &Destination),
) -> Result<(Option<CString>, Report)> {
    // An entry that could not be removed afterwards is not copied.
    accessat(folder, c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
    let fits = |to: BorrowedFd<'_>, len: u64| fits(site, to, len);
    let copy = UnnamedCopy::new(dest)?;
    let (new_folder, new_name) = (copy.dest.folder.as_fd(), &copy.name);
    let is_folder = tree::kind(stat) == FileType::Directory;
    let copied = is_folder.then(CopiedEntries::new);
    let report = match &copied {
        Some(copied) => {
            let from =
                tree::open_folder(folder.as_fd(), name).map_err(ChangeRefusal::of_reading)?;
            let excludes = |path: &[u8], is_folder| {
                // Another request is still filling it. It remains, and so do the folders above it.
                let name = last_name(path);
                let is_under_way = is_folder && is_incomplete(name);
                if !is_under_way {
                    copied.note(from.as_fd(), &path[1..]);
                }
                is_under_way
            };
            let mut copying = TreeCopy::new(&excludes, &fits, true, site.settings.changes.sync);
            let moved = copying.folder(&from, Some(b""), new_folder, new_name);
            moved.map_err(|refusal| refusal.beneath(&change.path))?;
            copying.report
        }
        None => {
            let mut copying = TreeCopy::new(&|_, _| false, &fits, true, site.settings.changes.sync);
            copying.leaf(folder.as_fd(), name, stat, new_folder, new_name)?;
            copying.report
        }
    };
    let aside = copy.publish(change, site, to, stat)?;
    // Writes to two file systems are not ordered: the removal of the original could be on the disk
    // before the name of the copy.
    sync_names(site, &dest.folder).map_err(|errno| ChangeRefusal {
        // What it replaced is removed like a stale upload, a day later.
        is_copied: true,
        ..ChangeRefusal::unsynced_copy(errno)
    })?;
    let removed = match &copied {
        Some(copied) => removal::remove_copied(folder.as_fd(), name, copied)
            .map_err(|refusal| refusal.beneath(&change.path)),
        None => remove_original(site, folder, name, stat),
    };
    match removed {
        Ok(()) => Ok((aside, report)),
        Err(refusal) => {
            // The replaced folder is removed anyway. If that fails too, the first error is the more
            // useful one.
            let _ = dest.remove(aside, &hidden_beneath(site, &to.path));
            Err(ChangeRefusal { is_made: false, is_copied: true, ..refusal })
        }
    }
}

/// Removes a file or a link that was copied, if it is still the same version.
fn remove_original(site: &Site, folder: &OwnedFd, name: &CStr, copied: &Stat) -> Result<()> {
    let _names = site.names.hold(true);
    let now = stat_entry(folder, name)?;
    if now.is_none_or(|now| Version::from_stat(&now) != Version::from_stat(copied)) {
        return Err(ChangeRefusal::new(
            409,
            "the file was replaced while it was moved; both copies remain",
        ));
    }
    removal::remove(folder.as_fd(), name).map_err(|refusal| {
        let reason = refusal.detail;
        ChangeRefusal::made(format_args!("the original cannot be removed: {reason}"))
    })
}

/// Copies a file to a new one, which has no name yet.
fn copied(
    site: &Site,
    copying: &mut TreeCopy<'_>,
    from: &OwnedFd,
    folder: &OwnedFd,
    name: &OsStr,
) -> Result<AtomicFile> {
    let mut new_file = AtomicFile::create_in(folder.try_clone()?, name, 0o600)?;
    copying.file(from, new_file.file())?;
    if site.settings.changes.sync {
        new_file.sync()?;
    }
    new_file.end_writes()?;
    Ok(new_file)
}

/// A new entry under a temporary hidden name. Dropping this removes it unless it was published.
struct UnnamedCopy<'a> {
    dest: &'a mut DestEntry,
    name: CString,
    is_published: bool,
}

impl<'a> UnnamedCopy<'a> {
    fn new(dest: &'a mut DestEntry) -> Result<Self> {
        if only_adds(&dest.folder) {
            // The copy could be neither renamed nor removed there.
            return Err(Errno::PERM.into());
        }
        Ok(Self { name: hidden_name(&dest.name), dest, is_published: false })
    }

    /// Gives the entry its final name; returns the hidden name of a folder that was replaced.
    fn publish(
        mut self,
        change: &Change,
        site: &Site,
        to: &Destination,
        source: &Stat,
    ) -> Result<Option<CString>> {
        // The destination may have appeared or changed while the source was copied.
        find_existing(site, to, self.dest, source)?;
        let is_folder = tree::kind(source) == FileType::Directory;
        let (mut renaming, mut attempts) = (Renaming::Atomic, 0);
        loop {
            let _names = change.hold_names(site, renaming == Renaming::Checked)?;
            change.check_dest(site, self.dest)?;
            change.refuse_own_target(site, source, self.dest)?;
            match self.dest.give(is_folder, &self.dest.folder, &self.name, renaming) {
                Err(refusal) if renaming.is_refused(&refusal) => renaming = Renaming::Checked,
                Err(refusal)
                    if self.dest.count_look(&refusal, &mut attempts) && to.may_replace() =>
                {
                    find_existing(site, to, self.dest, source)?;
                }
                given => return given.inspect(|_| self.is_published = true),
            }
        }
    }
}

impl Drop for UnnamedCopy<'_> {
    fn drop(&mut self) {
        if !self.is_published {
            removal::discard_copy(self.dest.folder.as_fd(), &self.name);
        }
    }
}

/// Syncs the names in a folder to the disk, if the settings say so.
fn sync(site: &Site, folder: &OwnedFd) -> Result<()> {
    sync_names(site, folder).map_err(ChangeRefusal::unsynced)
}

fn sync_names(site: &Site, folder: &OwnedFd) -> Result<(), Errno> {
    if site.settings.changes.sync { sync_folder(folder, fsync) } else { Ok(()) }
}
