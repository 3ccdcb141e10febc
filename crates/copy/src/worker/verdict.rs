//! Decides what to do with an entry whose name exists in the target.

use std::ffi::{CStr, CString};
use std::io::ErrorKind;
use std::path::PathBuf;

use rustix::fs::{Access, AtFlags, FileType, Stat, accessat, statat};
use rustix::io::Errno;
use underpass_engine::atomic_file::WRITABLE_BY_OTHERS;
use underpass_engine::hint::Action;
use underpass_engine::wait::lock;
use underpass_engine::{FileId, atomic_file, is_file};

use crate::error::{At, CopyError, CopyRefusal, Overlap, Result};
use crate::options::backup::BackupControl;
use crate::options::{ExistingFiles, Follow, LinkKind};
use crate::tree::dir_pair::{DirOrigin, DirPair};
use crate::tree::entry::SourceEntry;
use crate::tree::same_file::{is_copy_of, is_kept, is_named_twice, is_same};
use crate::worker::CopyWorker;

/// The decision about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryVerdict {
    /// Make it: its name is free.
    New,
    /// Replace the entry with its name.
    Replace,
    /// Leave the entry with its name.
    Leave,
    /// Leave the entry with its name, since it is up to date; other names of the file may link to
    /// it.
    Current,
    /// Leave the entry with its name, since it is the copy of an earlier run.
    Resumed,
}

impl CopyWorker<'_> {
    /// Decides what to do with an entry.
    pub(crate) fn verdict(
        &mut self,
        folder: &DirPair,
        entry: &SourceEntry,
        stat: &Stat,
    ) -> Result<EntryVerdict> {
        self.decide(folder, entry, stat, self.context.settings.resume)
    }

    /// Decides the same about a file that has the type, size and time of an entry, but is not its
    /// copy.
    pub(crate) fn verdict_on_other(
        &mut self,
        folder: &DirPair,
        entry: &SourceEntry,
        stat: &Stat,
    ) -> Result<EntryVerdict> {
        self.decide(folder, entry, stat, false)
    }

    /// Decides what to do with an entry, which an earlier run may have copied if it `may_resume`.
    fn decide(
        &mut self,
        folder: &DirPair,
        entry: &SourceEntry,
        stat: &Stat,
        may_resume: bool,
    ) -> Result<EntryVerdict> {
        let Some(there) = self.target_stat(folder, entry)? else { return Ok(EntryVerdict::New) };
        let path = || folder.target_path(entry.target());
        let settings = &self.context.settings;
        let kind = FileType::from_raw_mode(there.st_mode);
        if kind == FileType::Directory {
            return self.leave_folder(folder, stat, &there, path);
        }
        if settings.link == Some(LinkKind::Hard) && FileId::of(stat) == FileId::of(&there)
            || is_named_twice(settings, folder, entry, stat, &there)
        {
            // The entry has that name already.
            return Ok(EntryVerdict::Leave);
        }
        self.refuse_same(folder, entry, stat, &there)?;
        if may_resume
            && is_copy_of(folder, entry, stat, &there)
            && self.may_be_ours(folder, stat, &there)
        {
            return Ok(EntryVerdict::Resumed);
        }
        // A wrong copy that an earlier run left is not up to date, whatever its time.
        let is_kept = if settings.resume && !may_resume {
            settings.existing == ExistingFiles::Keep
        } else {
            is_kept(settings, stat, &there, &folder.target)
        };
        // An entry in the hidden folder of an earlier run may be a part; no other copy made it.
        if settings.existing == ExistingFiles::Refuse && folder.origin != DirOrigin::Adopted {
            return Err(CopyError::Refused(CopyRefusal::Exists { to: path() }));
        }
        if is_kept && folder.origin != DirOrigin::Adopted {
            if is_twin(folder, entry, &there) {
                return Err(just_made(folder, entry));
            }
            let moves_bytes = settings.link.is_none() && !settings.attributes_only;
            let is_linked = settings.hard_links && moves_bytes;
            let may_link = is_linked && settings.existing != ExistingFiles::Keep;
            let may_link = may_link && self.context.links.may_have(stat);
            if may_link && is_copy_of(folder, entry, stat, &there) {
                return Ok(EntryVerdict::Current);
            }
            self.totals.kept += 1;
            return Ok(EntryVerdict::Leave);
        }
        let is_ours =
            self.has_made(folder, entry.target(), &there) && !self.context.settings.keeps_all();
        if !is_ours {
            self.check_replaceable(folder, entry, stat, kind)?;
        }
        if folder.origin != DirOrigin::Adopted && !self.context.may_replace(path)? {
            self.totals.kept += 1;
            return Ok(EntryVerdict::Leave);
        }
        if is_ours {
            return Err(just_made(folder, entry));
        }
        Ok(EntryVerdict::Replace)
    }

    /// Returns whether an earlier run may have made a file. Another user who can open it for
    /// writing now could still write once it has the owner and the mode of its original.
    fn may_be_ours(&mut self, folder: &DirPair, stat: &Stat, there: &Stat) -> bool {
        let settings = &self.context.settings;
        let is_kept = settings.preserve.ownership && there.st_uid == stat.st_uid;
        let for_others = there.st_mode & !stat.st_mode & WRITABLE_BY_OTHERS;
        if !is_file(there) || (is_kept || there.st_uid == settings.owner.0) && for_others == 0 {
            return true;
        }
        if settings.dry_run {
            return false;
        }
        // File systems without owners or permissions report others for new files.
        let known = self.new_file.filter(|(device, _)| *device == there.st_dev);
        let new =
            known.map_or_else(|| atomic_file::new_file(&folder.target, 0o600), |(_, new)| Ok(new));
        new.is_ok_and(|new| {
            self.new_file = Some((there.st_dev, new));
            (is_kept || there.st_uid == new.st_uid) && for_others & !new.st_mode == 0
        })
    }

    /// Refuses to replace the file with the name of an entry, which is of this kind, if the options
    /// or its permissions do not allow it.
    fn check_replaceable(
        &self,
        folder: &DirPair,
        entry: &SourceEntry,
        stat: &Stat,
        kind: FileType,
    ) -> Result<()> {
        let settings = &self.context.settings;
        let path = || folder.target_path(entry.target());
        let is_special = !has_bytes(kind) && kind != FileType::Symlink;
        if self.is_backup(folder, entry, stat) {
            let from = folder.source_path(&entry.name);
            return Err(CopyError::Refused(CopyRefusal::IsBackup { from, to: path() }));
        }
        let removes = settings.removes_existing() || settings.link.is_some();
        let own_kind = FileType::from_raw_mode(stat.st_mode);
        if is_special && !settings.force && !removes && own_kind != kind {
            return Err(Errno::EXIST).at("replacing a device, FIFO or socket", path);
        }
        // --attributes-only replaces no bytes.
        if settings.attributes_only && !removes && has_bytes(kind) && !has_bytes(own_kind) {
            return Err(Errno::EXIST).at(Action::Replacing, path);
        }
        // An earlier run made the entries in its hidden folder.
        let is_ours = folder.origin == DirOrigin::Adopted;
        // As with coreutils, the file need not be writable for a new link, device or FIFO, unless
        // all links are followed.
        let is_read = settings.follow == Follow::Always
            || !settings.recursive && own_kind != FileType::Symlink;
        let moves_bytes = has_bytes(own_kind) || is_read;
        if has_bytes(kind) && moves_bytes && !settings.force && !removes && !is_ours {
            let flags = AtFlags::EACCESS;
            accessat(&folder.target, entry.target(), Access::WRITE_OK, flags)
                .at(Action::Replacing, path)?;
        }
        Ok(())
    }
}

impl CopyWorker<'_> {
    /// Leaves a folder that has the name of a file, if the options or the answer to a question say
    /// so, and fails otherwise.
    fn leave_folder(
        &mut self,
        folder: &DirPair,
        stat: &Stat,
        there: &Stat,
        path: impl Fn() -> PathBuf,
    ) -> Result<EntryVerdict> {
        let settings = &self.context.settings;
        let may_leave =
            settings.existing != ExistingFiles::Refuse && folder.origin != DirOrigin::Adopted;
        if may_leave
            && (is_kept(settings, stat, there, &folder.target)
                || !self.context.may_replace(&path)?)
        {
            self.totals.kept += 1;
            return Ok(EntryVerdict::Leave);
        }
        Err(Errno::ISDIR).at(Action::Replacing, path)
    }

    /// Refuses to copy a file onto itself. `stat` is the source, `there` the entry that has the
    /// name.
    pub(super) fn refuse_same(
        &self,
        folder: &DirPair,
        entry: &SourceEntry,
        stat: &Stat,
        there: &Stat,
    ) -> Result<()> {
        let settings = &self.context.settings;
        // With -n nothing is written, so nothing is lost.
        if settings.existing == ExistingFiles::Keep
            || !is_same(settings, folder, entry, stat, there)
        {
            return Ok(());
        }
        let from = folder.source_path(&entry.name);
        let to = || folder.target_path(entry.target());
        let to = self.context.link.clone().unwrap_or_else(to);
        Err(Overlap::SameFile { from, to }.into())
    }

    /// Returns whether the backup of the file with the name of an entry would replace its original.
    fn is_backup(&self, folder: &DirPair, entry: &SourceEntry, stat: &Stat) -> bool {
        let backup = self.context.settings.backup.as_ref();
        let Some(backup) = backup.filter(|it| it.control != BackupControl::Numbered) else {
            return false;
        };
        let kept = CString::new(backup.simple(entry.target().to_bytes())).unwrap_or_default();
        statat(&folder.target, &kept, AtFlags::empty())
            .is_ok_and(|there| FileId::of(&there) == FileId::of(stat))
    }
}

impl CopyWorker<'_> {
    /// Gives an entry its name by `commit`, unless that replaces what this copy has made: on a file
    /// system that ignores the case of names, several sources may have one target. Other threads
    /// that name entries in the folder wait, so that none is missed.
    pub(crate) fn name_once<T>(
        &self,
        folder: &DirPair,
        entry: &SourceEntry,
        verdict: EntryVerdict,
        commit: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (all, here) = (self.context.remembered(), folder.made.as_ref());
        let (mut all, mut here) = (all.map(lock), here.map(lock));
        if all.is_none() {
            here = here.filter(|here| here.needs_names());
        }
        if all.is_none() && here.is_none() {
            return commit().map_err(|failure| of_twin(folder, entry, failure, false));
        }
        let (to, name) = (&folder.target, entry.target());
        let look = || statat(to, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_ours = |there: &Stat| {
            all.as_ref().is_some_and(|all| all.has(there))
                || here.as_ref().is_some_and(|here| here.contains(to, name, there))
        };
        if verdict == EntryVerdict::Replace
            && look().is_ok_and(|there| is_ours(&there))
            && !self.context.settings.keeps_all()
        {
            return Err(just_made(folder, entry));
        }
        let committed = commit().map_err(|failure| {
            let is_ours = look().is_ok_and(|there| is_ours(&there));
            of_twin(folder, entry, failure, is_ours)
        })?;
        if let Ok(named) = look() {
            if let Some(all) = &mut all {
                all.insert(&named);
            }
            if let Some(here) = &mut here {
                here.insert_name(to, name, &named);
            }
        }
        Ok(committed)
    }

    /// Returns whether this is a dry run, and tells the observer of an entry that would be copied.
    /// One that an earlier run has copied would not be.
    pub(crate) fn is_dry(
        &self,
        folder: &DirPair,
        entry: &SourceEntry,
        verdict: EntryVerdict,
    ) -> bool {
        let is_dry = self.context.settings.dry_run;
        if is_dry && verdict != EntryVerdict::Resumed {
            let from = folder.source_path(&entry.name);
            let to = folder.target_path(entry.target());
            self.context.observer.would_copy(&from, &to);
        }
        is_dry
    }

    /// Returns whether this copy has made a file that is in the target of a folder.
    pub(crate) fn has_made(&self, folder: &DirPair, name: &CStr, there: &Stat) -> bool {
        let made = folder.made.as_ref().map(lock);
        let is_here = made.is_some_and(|made| made.contains(&folder.target, name, there));
        is_here || self.context.has_made(there)
    }

    /// Returns whether the options leave the entries of a folder untouched. Those in the hidden
    /// folder of an earlier run may be changed.
    pub(crate) fn leaves_existing(&self, folder: &DirPair) -> bool {
        let existing = self.context.settings.existing;
        matches!(existing, ExistingFiles::Keep | ExistingFiles::Refuse)
            && folder.origin != DirOrigin::Adopted
    }
}

/// Returns whether the file with the name of an entry is the copy of another one, whose name
/// differs in case only. A folder that this copy has made holds nothing else.
fn is_twin(folder: &DirPair, entry: &SourceEntry, there: &Stat) -> bool {
    match &folder.made {
        Some(made) => lock(made).contains(&folder.target, entry.target(), there),
        None => folder.origin == DirOrigin::Fresh,
    }
}

/// Returns the refusal to replace an entry that was just made.
pub(crate) fn just_made(folder: &DirPair, entry: &SourceEntry) -> CopyError {
    let from = folder.source_path(&entry.name);
    let to = folder.target_path(entry.target());
    CopyError::Refused(CopyRefusal::JustMade { from, to })
}

/// Returns why a new entry could not be made: this copy may have made the one with its name, as
/// it has all in a folder of its own.
pub(crate) fn of_twin(
    folder: &DirPair,
    entry: &SourceEntry,
    failure: CopyError,
    is_ours: bool,
) -> CopyError {
    match &failure {
        CopyError::Path { source, .. }
            if source.kind() == ErrorKind::AlreadyExists
                && (is_ours || folder.origin == DirOrigin::Fresh) =>
        {
            just_made(folder, entry)
        }
        _ => failure,
    }
}

fn has_bytes(kind: FileType) -> bool {
    kind == FileType::RegularFile
}
