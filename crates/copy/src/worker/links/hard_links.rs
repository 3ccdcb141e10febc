//! Makes hard links for files that have several names.

use std::sync::Arc;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use underpass_engine::atomic_file::lacks_links;

use crate::error::{At, Result};
use crate::options::ExistingFiles;
use crate::tree::dir_pair::{DirOrigin, DirPair};
use crate::tree::entry::SourceEntry;
use crate::tree::hidden_names::partial_name;
use crate::tree::link_table::{CopyLocation, LinkDecision, WaitingName};
use crate::tree::merge;
use crate::tree::same_file::is_copy_of;
use crate::tree::task::FolderTask;
use crate::worker::CopyWorker;
use crate::worker::verdict::EntryVerdict;

impl CopyWorker<'_> {
    /// Links a file with several names to its first copy, and returns whether nothing more is to be
    /// done. If a thread still copies it, that thread makes the link.
    pub(crate) fn is_linked(
        &mut self,
        folder: &Arc<DirPair>,
        entry: &SourceEntry,
        stat: &Stat,
        verdict: EntryVerdict,
    ) -> Result<bool> {
        if !self.context.settings.hard_links || !self.context.links.may_have(stat) {
            return Ok(false);
        }
        let is_new = verdict == EntryVerdict::New;
        match self.context.links.found(stat, folder, entry, is_new) {
            LinkDecision::Copy => Ok(false),
            LinkDecision::Wait => Ok(true),
            LinkDecision::Link(location) => self.link_to(&location, folder, entry, stat, is_new),
        }
    }

    /// Leaves a file that is up to date, and returns whether it is: it is linked to the first copy
    /// of the file, or becomes that itself.
    pub(crate) fn is_up_to_date(
        &mut self,
        folder: &Arc<DirPair>,
        entry: &SourceEntry,
        stat: &Stat,
        verdict: EntryVerdict,
    ) -> Result<bool> {
        if verdict != EntryVerdict::Current {
            return Ok(false);
        }
        if self.context.settings.dry_run {
            self.totals.kept += 1;
        } else if !self.is_linked(folder, entry, stat, verdict)? {
            self.totals.kept += 1;
            self.release_links(folder, entry, stat, true);
        }
        Ok(true)
    }

    /// Gives a copy one more name, and returns whether the file system allows that; if not, the
    /// name has to become a separate copy.
    fn link_to(
        &mut self,
        location: &CopyLocation,
        folder: &DirPair,
        entry: &SourceEntry,
        stat: &Stat,
        is_new: bool,
    ) -> Result<bool> {
        let name = entry.target();
        let settings = &self.context.settings;
        let backups = settings.backups.as_ref();
        let mut linked = location.link(folder, name, is_new || settings.resume, backups);
        if linked == Err(Errno::EXIST) && !is_new && settings.resume {
            let there = self.target_stat(folder, entry)?;
            let was_resumed = there.is_some_and(|it| is_copy_of(folder, entry, stat, &it));
            if was_resumed && self.verdict_on_other(folder, entry, stat)? == EntryVerdict::Leave {
                return Ok(true);
            }
            linked = location.link(folder, name, false, backups);
        }
        let linked = match linked {
            // An entry that has appeared since is treated as if it had been there before.
            Err(Errno::EXIST) if is_new && folder.origin != DirOrigin::Fresh => {
                if self.verdict(folder, entry, stat)? == EntryVerdict::Leave {
                    return Ok(true);
                }
                location.link(folder, name, false, backups)
            }
            linked => linked,
        };
        let backup = match linked {
            // FAT, exFAT and some file systems of other machines have no hard links; others have
            // a limited number, and none from one mount to another.
            Err(errno) if errno == Errno::XDEV || lacks_links(errno, &folder.target) => {
                self.totals.links_copied += 1;
                return Ok(false);
            }
            linked => linked.at("linking", || folder.target_path(name))?,
        };
        if backup.is_none() && self.context.settings.existing == ExistingFiles::ReplaceOlder {
            // The copy existed before this run.
            self.totals.kept += 1;
            return Ok(true);
        }
        let backup = backup.flatten();
        self.totals.hard_links += 1;
        self.name_made(folder, entry, backup.as_deref());
        if self.context.settings.resume && folder.origin != DirOrigin::Fresh {
            // An earlier run may have found this name first, and begun to copy here.
            let partial = partial_name(name, stat);
            if self.context.hidden_names.take_hidden(folder, &partial) {
                merge::clear_name(&self.context.settings, &folder.target, &partial);
            }
        }
        Ok(true)
    }

    /// Links the names that wait for the first copy of a file, or lets them be copied if that
    /// failed.
    pub(crate) fn release_links(
        &mut self,
        folder: &Arc<DirPair>,
        entry: &SourceEntry,
        stat: &Stat,
        is_made: bool,
    ) {
        if !self.context.settings.hard_links || !self.context.links.may_have(stat) {
            return;
        }
        if !is_made {
            let waiting = self.context.links.failed(stat);
            let tasks =
                waiting.into_iter().map(|it| FolderTask::Entries(it.folder, vec![it.entry]));
            // These names hold their folders already.
            return self.context.queue.push(tasks);
        }
        let location = CopyLocation::new(folder, entry.target());
        for waiting in self.context.links.copied(stat, location.clone()) {
            let WaitingName { folder, entry, is_new } = waiting;
            match self.link_to(&location, &folder, &entry, stat, is_new) {
                Ok(true) => {}
                Ok(false) => self.attempt(|worker| worker.copy_unlinked(&folder, &entry)),
                Err(failure) => self.context.record_failure(failure),
            }
            self.context.release(&folder, true);
        }
    }

    /// Copies one more name of a file, which cannot be linked.
    fn copy_unlinked(&mut self, folder: &Arc<DirPair>, entry: &SourceEntry) -> Result<()> {
        let stat = self.stat(folder, entry)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.copy_file(folder, entry, false),
            _ => self.copy_special(folder, entry, &stat, false),
        }
    }
}
