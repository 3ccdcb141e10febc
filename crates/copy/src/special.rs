//! What has no bytes: links, devices, FIFOs, sockets; and what may stand in the way of anything.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{
    Access, AtFlags, FileType, Mode, Stat, accessat, mknodat, readlinkat, renameat, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::error::At;
use crate::error::{CopyError, Refusal};
use crate::file::partial_name;
use crate::folder::{Entry, Folder, State};
use crate::links::{Spot, Turn};
use crate::same::is_same;
use crate::worker::Worker;
use crate::{metadata, names};
use underpass_engine::hint::Action;

/// What is to be done about something that is to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Make it.
    New,
    /// Put it in the place of what is there.
    Replace,
    /// Leave what is there.
    Leave,
    /// Leave what is there, for it is the copy.
    Resumed,
}

impl Worker<'_> {
    /// Copies a link as a link.
    pub(crate) fn link(&mut self, folder: &Arc<Folder>, entry: &Entry) -> Result<(), CopyError> {
        let stat = self.stat(folder, entry)?;
        self.copy_special(folder, entry, &stat, true)
    }

    /// Makes a device, a FIFO or a socket like another one.
    pub(crate) fn special(&mut self, folder: &Arc<Folder>, entry: &Entry) -> Result<(), CopyError> {
        let stat = self.stat(folder, entry)?;
        self.copy_special(folder, entry, &stat, true)
    }

    /// Copies what has no bytes; `may_link` as for files.
    fn copy_special(
        &mut self,
        folder: &Arc<Folder>,
        entry: &Entry,
        stat: &Stat,
        may_link: bool,
    ) -> Result<(), CopyError> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Symlink {
            let from = || folder.source_path(&entry.name);
            let leads =
                readlinkat(&folder.source, &entry.name, Vec::new()).at(Action::Reading, from)?;
            let made = self.make_special(folder, entry, (stat, may_link), |folder, name| {
                symlinkat(&leads, &folder.target, name)
            })?;
            self.totals.links += u64::from(made);
            return Ok(());
        }
        let mode = Mode::from_raw_mode(self.job.settings.mode(stat.st_mode));
        let made = self.make_special(folder, entry, (stat, may_link), |folder, name| {
            mknodat(&folder.target, name, kind, mode, stat.st_rdev)
        })?;
        self.totals.specials += u64::from(made);
        Ok(())
    }

    /// Makes something in one call; true if it was made.
    fn make_special(
        &mut self,
        folder: &Arc<Folder>,
        entry: &Entry,
        (stat, may_link): (&Stat, bool),
        make: impl Fn(&Folder, &std::ffi::CStr) -> Result<(), Errno>,
    ) -> Result<bool, CopyError> {
        let verdict = self.verdict(folder, entry, stat)?;
        if verdict == Verdict::Leave {
            return Ok(false);
        }
        if self.is_dry(folder, entry) {
            return Ok(true);
        }
        if may_link && self.is_linked(folder, entry, stat)? {
            return Ok(false);
        }
        if verdict == Verdict::Resumed {
            self.totals.count_resumed(stat);
            self.tell_links(folder, entry, stat, true);
            return Ok(false);
        }
        let made = self.make_as(folder, entry, stat, verdict, make);
        if may_link {
            self.tell_links(folder, entry, stat, made.is_ok());
        }
        made.map(|()| true)
    }

    fn make_as(
        &mut self,
        folder: &Folder,
        entry: &Entry,
        stat: &Stat,
        verdict: Verdict,
        make: impl Fn(&Folder, &std::ffi::CStr) -> Result<(), Errno>,
    ) -> Result<(), CopyError> {
        let target = entry.target();
        let path = || folder.target_path(target);
        let hidden =
            (verdict == Verdict::Replace).then(|| names::hidden(target, Some(std::process::id())));
        let name = hidden.as_deref().unwrap_or(target);
        make(folder, name).at(Action::Creating, path)?;
        let (from, to) = (folder.source.as_fd(), folder.target.as_fd());
        let ends = ((from, entry.name.as_c_str()), (to, name));
        let settings = &self.job.settings;
        let lacking = metadata::keep_by_name(settings, ends.0, ends.1, stat, &mut self.totals);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        self.job.remember(|| statat(to, name, flags));
        let named = match &hidden {
            Some(hidden) => renameat(to, hidden, to, target).at("naming", path),
            None => Ok(()),
        };
        if named.is_err()
            && let Some(hidden) = &hidden
        {
            // It is ours, and nobody will miss it.
            let _ = unlinkat(to, hidden, AtFlags::empty());
        }
        if named.is_ok()
            && let Some(failure) = lacking.failure(path)
        {
            self.job.problem(failure);
        }
        named
    }

    /// Whether something may be copied, by what has its name now.
    pub(crate) fn verdict(
        &mut self,
        folder: &Folder,
        entry: &Entry,
        stat: &Stat,
    ) -> Result<Verdict, CopyError> {
        let Some(there) = self.target_stat(folder, entry)? else { return Ok(Verdict::New) };
        let path = || folder.target_path(entry.target());
        let settings = &self.job.settings;
        let kind = FileType::from_raw_mode(there.st_mode);
        if kind == FileType::Directory {
            return Err(Errno::ISDIR).at(Action::Replacing, path);
        }
        if is_same(folder, entry, stat, &there) {
            let from = folder.source_path(&entry.name);
            return Err(CopyError::Refused(Refusal::SameFile { from, to: path() }));
        }
        if settings.resume && is_copy(stat, &there) {
            return Ok(Verdict::Resumed);
        }
        let time = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec);
        // What an earlier run has left in its hidden folder may be a part, and is nobody's.
        let is_kept = settings.no_clobber || (settings.update && time(stat) <= time(&there));
        if is_kept && folder.state != State::Adopted {
            self.totals.kept += 1;
            return Ok(Verdict::Leave);
        }
        if self.job.has_made(&there) {
            let from = folder.source_path(&entry.name);
            return Err(CopyError::Refused(Refusal::JustMade { from, to: path() }));
        }
        let is_special = !matches!(kind, FileType::RegularFile | FileType::Symlink);
        if is_special && !settings.force && FileType::from_raw_mode(stat.st_mode) != kind {
            return Err(Errno::EXIST).at("replacing a device, FIFO or socket", path);
        }
        if kind == FileType::RegularFile && !settings.force {
            let flags = AtFlags::EACCESS;
            accessat(&folder.target, entry.target(), Access::WRITE_OK, flags)
                .at(Action::Replacing, path)?;
        }
        if folder.state != State::Adopted && !self.job.may_replace(path)? {
            self.totals.kept += 1;
            return Ok(Verdict::Leave);
        }
        Ok(Verdict::Replace)
    }

    /// Whether a file with several names has been seen to: linked to its copy, or left to who makes
    /// that.
    pub(crate) fn is_linked(
        &mut self,
        folder: &Arc<Folder>,
        entry: &Entry,
        stat: &Stat,
    ) -> Result<bool, CopyError> {
        if !self.job.settings.hard_links || !self.job.links.may_have(stat) {
            return Ok(false);
        }
        match self.job.links.found(stat, folder, entry) {
            Turn::Copy => Ok(false),
            Turn::Wait => Ok(true),
            Turn::Link(spot) => self.link_to(&spot, folder, entry, stat),
        }
    }

    /// Gives a copy one more of its names; false if there can be no such name, so that it has to
    /// become a copy of its own.
    fn link_to(
        &mut self,
        spot: &Spot,
        folder: &Folder,
        entry: &Entry,
        stat: &Stat,
    ) -> Result<bool, CopyError> {
        let name = entry.target();
        match spot.link(folder, name) {
            // FAT, exFAT and some file systems of other machines have no hard links; others have
            // only so many, and none from one mount to another.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK | Errno::XDEV) => {
                self.totals.links_copied += 1;
                return Ok(false);
            }
            linked => linked.at("linking", || folder.target_path(name))?,
        }
        self.totals.hard_links += 1;
        if self.job.settings.resume && folder.state != State::Fresh {
            // An earlier run may have found this name first, and begun to copy here.
            let _ = unlinkat(&folder.target, partial_name(name, stat), AtFlags::empty());
        }
        Ok(true)
    }

    /// Tells those who wait for the first of several names that it is there, or is not.
    pub(crate) fn tell_links(
        &mut self,
        folder: &Arc<Folder>,
        entry: &Entry,
        stat: &Stat,
        is_made: bool,
    ) {
        use crate::crew::Task;
        if !self.job.settings.hard_links || !self.job.links.may_have(stat) {
            return;
        }
        if !is_made {
            let waiting = self.job.links.failed(stat);
            let tasks =
                waiting.into_iter().map(|(folder, entry)| Task::Entries(folder, vec![entry]));
            // They hold their folders already.
            return self.job.stack.push(tasks);
        }
        let spot = Spot::new(folder, entry.target());
        for (folder, entry) in self.job.links.copied(stat, spot.clone()) {
            match self.link_to(&spot, &folder, &entry, stat) {
                Ok(true) => {}
                Ok(false) => self.note(|worker| worker.copy_unlinked(&folder, &entry)),
                Err(failure) => self.job.problem(failure),
            }
            self.job.release(&folder, true);
        }
    }

    /// Copies one more name of what was copied, as it cannot be linked.
    fn copy_unlinked(&mut self, folder: &Arc<Folder>, entry: &Entry) -> Result<(), CopyError> {
        let stat = self.stat(folder, entry)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.copy_file(folder, entry, false),
            _ => self.copy_special(folder, entry, &stat, false),
        }
    }
}

/// Whether this is the copy that an earlier run has made: of the same kind and size, and with the
/// time of the original, which a copy gets last of all.
fn is_copy(original: &Stat, copy: &Stat) -> bool {
    let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
    // Some file systems know whole seconds only.
    let is_same_time = original.st_mtime == copy.st_mtime
        && (original.st_mtime_nsec == copy.st_mtime_nsec || copy.st_mtime_nsec == 0);
    kind(original) == kind(copy) && original.st_size == copy.st_size && is_same_time
}
