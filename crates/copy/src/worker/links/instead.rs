//! Makes links to the originals instead of copies.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, Stat, fstat, linkat, stat, statat, symlinkat};
use rustix::io::Errno;
use underpass_engine::hint::Action;
use underpass_engine::{FileId, is_file};

use crate::error::{At, CopyError, CopyRefusal, Result};
use crate::files::replace::place;
use crate::options::LinkKind;
use crate::tree::dir_pair::DirPair;
use crate::tree::entry::SourceEntry;
use crate::worker::CopyWorker;
use crate::worker::verdict::EntryVerdict;

impl CopyWorker<'_> {
    /// Gives an entry that is not a folder another name, or makes a symbolic link to it.
    pub(crate) fn link_instead(
        &mut self,
        folder: &Arc<DirPair>,
        entry: &SourceEntry,
        kind: LinkKind,
    ) -> Result<()> {
        let stat = self.stat(folder, entry)?;
        let (target, to) = (entry.target(), folder.target.as_fd());
        let path = || folder.target_path(target);
        let verdict = self.verdict(folder, entry, &stat)?;
        if verdict == EntryVerdict::Leave {
            return Ok(());
        }
        if verdict == EntryVerdict::Replace
            && !self.may_replace_by_link(folder, entry, &stat, kind)?
        {
            return Err(CopyError::Refused(CopyRefusal::Exists { to: path() }));
        }
        let leads = folder.source_path(&entry.name);
        if kind == LinkKind::Symbolic && leads.is_relative() && !is_current(to) {
            return Err(CopyError::Refused(CopyRefusal::RelativeLink { to: path() }));
        }
        if self.is_dry(folder, entry, verdict) {
            self.count_link(kind);
            return Ok(());
        }
        let make = |name: &CStr| match kind {
            LinkKind::Hard => {
                let flags = if entry.follows { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
                linkat(&folder.source, &entry.name, to, name, flags)
            }
            LinkKind::Symbolic => symlinkat(leads.as_os_str().as_bytes(), to, name),
        };
        let is_new = verdict != EntryVerdict::Replace;
        let backups = self.context.backups_in(folder);
        let backup = self.name_once(folder, entry, verdict, || {
            place(to, target, is_new, backups, make).at("linking", path).map(|made| made.1)
        })?;
        if !is_new {
            self.name_removed(folder, entry);
        }
        self.count_link(kind);
        self.count_file();
        self.name_made(folder, entry, backup.as_deref());
        Ok(())
    }

    /// Returns whether a link may replace an existing file. As with coreutils, an option must
    /// request that, unless every copy would remove the file first.
    fn may_replace_by_link(
        &self,
        folder: &DirPair,
        entry: &SourceEntry,
        stat: &Stat,
        kind: LinkKind,
    ) -> Result<bool> {
        let settings = &self.context.settings;
        if settings.remove_destination || settings.force || settings.backup.is_some() {
            return Ok(true);
        }
        let is_file = is_file(stat);
        if (settings.interactive && kind == LinkKind::Hard) || (!entry.follows && !is_file) {
            return Ok(true);
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let there = statat(&folder.target, entry.target(), flags);
        let there = there.at(Action::Replacing, || folder.target_path(entry.target()))?;
        Ok(settings.hard_links && there.st_nlink > 1)
    }

    fn count_link(&mut self, kind: LinkKind) {
        match kind {
            LinkKind::Hard => self.totals.hard_links += 1,
            LinkKind::Symbolic => self.totals.links += 1,
        }
    }
}

/// Returns whether a folder is the current one, from which relative paths start.
fn is_current(folder: BorrowedFd<'_>) -> bool {
    let id = |stat: Result<Stat, Errno>| stat.map(|stat| FileId::of(&stat));
    id(fstat(folder)).is_ok_and(|it| id(stat(c".")) == Ok(it))
}
