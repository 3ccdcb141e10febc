//! A thread that takes tasks from the queue and does them.

mod bytes;
mod deferred;
mod enter;
mod file;
mod links;
mod listing;
mod original;
mod retry;
mod special;
mod verdict;
mod verify;

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType, Stat, statat};
use underpass_engine::Usage;
use underpass_engine::atomic_file::stat_entry;
use underpass_engine::buffered::BUFFER;
use underpass_engine::hint::Action;

use crate::context::CopyContext;
use crate::error::{At, Result};
use crate::outcome::CopyTotals;
use crate::tree::dir_pair::{DirOrigin, DirPair};
use crate::tree::entry::SourceEntry;
use crate::tree::task::FolderTask;

/// A thread that copies.
pub(crate) struct CopyWorker<'a> {
    pub(crate) context: &'a CopyContext<'a>,
    pub(crate) totals: CopyTotals,
    /// A buffer for small files and comparisons.
    pub(crate) buffer: Vec<u8>,
    /// Buffer for listings.
    pub(crate) listing: Vec<u8>,
    /// The device that was looked up last, and the type of its file system.
    pub(crate) system: Option<(u64, &'static str)>,
    /// The device of the target that was looked up last, and the attributes that a new file with
    /// the mode 0600 gets there.
    pub(crate) new_file: Option<(u64, Stat)>,
}

impl Drop for CopyWorker<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.context.links.lose();
        }
    }
}

impl<'a> CopyWorker<'a> {
    /// Works until no task is left, and returns the totals.
    pub(crate) fn run(context: &'a CopyContext<'a>) -> CopyTotals {
        let mut worker = Self {
            context,
            totals: CopyTotals::default(),
            buffer: vec![0; BUFFER],
            listing: Vec::with_capacity(LISTING),
            system: None,
            new_file: None,
        };
        let before = Usage::of_this_thread();
        while let Some((task, lease)) = context.queue.lease_next() {
            let (folder, is_own) = task.folder();
            if !context.skips() {
                worker.perform(task);
            }
            context.release(&folder, is_own);
            context.queue.done(lease);
        }
        worker.totals.usage = Usage::of_this_thread() - before;
        std::mem::take(&mut worker.totals)
    }

    fn perform(&mut self, task: FolderTask) {
        match task {
            FolderTask::Read(folder, names) => self.read(&folder, names),
            FolderTask::Enter(folder, entry) => {
                self.attempt(|worker| worker.enter(&folder, &entry))
            }
            FolderTask::Deferred(later) => self.attempt(|worker| worker.resume_deferred(&later)),
            FolderTask::Entries(folder, entries) => {
                for entry in &entries {
                    if self.context.skips() {
                        return;
                    }
                    self.attempt(|worker| worker.entry(&folder, entry));
                }
            }
        }
    }

    /// Does some work, and records its failure, if any.
    pub(crate) fn attempt(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) {
        if let Err(failure) = work(self) {
            self.context.record_failure(failure);
        }
    }

    /// Copies an entry of any type. If another process makes its target at the same time, it is
    /// treated as if it had existed before.
    pub(crate) fn entry(&mut self, folder: &Arc<DirPair>, entry: &SourceEntry) -> Result<()> {
        self.take_name(folder, entry)?;
        let kind = match entry.kind {
            FileType::Unknown => self.kind(folder, entry)?,
            FileType::Symlink if entry.follows => self.kind(folder, entry)?,
            kind => kind,
        };
        // Bytes from a FIFO or a device cannot be read again.
        let is_there_still = matches!(kind, FileType::RegularFile | FileType::Symlink)
            || self.context.settings.recursive;
        match self.entry_of(kind, folder, entry) {
            Err(failure) if is_there_still && failure.is_taken() => {
                self.entry_of(kind, folder, entry)
            }
            done => done,
        }
    }

    /// Copies an entry of this type.
    fn entry_of(
        &mut self,
        kind: FileType,
        folder: &Arc<DirPair>,
        entry: &SourceEntry,
    ) -> Result<()> {
        let recursive = self.context.settings.recursive;
        if kind != FileType::Directory
            && let Some(link) = self.context.settings.link
        {
            return self.link_instead(folder, entry, link);
        }
        match kind {
            FileType::Directory if recursive || entry.only.is_some() => {
                folder.hold(false);
                let entry = SourceEntry { kind, ..entry.clone() };
                self.context.queue.push([FolderTask::Enter(Arc::clone(folder), entry)]);
                Ok(())
            }
            FileType::Directory => {
                let path = || folder.source_path(&entry.name);
                Err(rustix::io::Errno::ISDIR).at(Action::ReadingFolder, path)
            }
            FileType::RegularFile => self.file(folder, entry),
            // Without -r, special files are read, as by every other program.
            _ if !recursive && kind != FileType::Symlink => self.file(folder, entry),
            _ => self.special(folder, entry),
        }
    }

    /// Returns the type of an entry, by fstatat(2).
    fn kind(&self, folder: &DirPair, entry: &SourceEntry) -> Result<FileType> {
        let stat = self.stat(folder, entry)?;
        Ok(FileType::from_raw_mode(stat.st_mode))
    }

    /// Returns mode, owner, size and times of an entry.
    pub(crate) fn stat(&self, folder: &DirPair, entry: &SourceEntry) -> Result<Stat> {
        let flags = if entry.follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let path = || folder.source_path(&entry.name);
        statat(&folder.source, &entry.name, flags).at("looking at", path)
    }

    /// Returns the metadata of the entry with its name in the target; `None` if there is none.
    pub(crate) fn target_stat(
        &self,
        folder: &DirPair,
        entry: &SourceEntry,
    ) -> Result<Option<Stat>> {
        if folder.origin == DirOrigin::Fresh {
            return Ok(None);
        }
        stat_entry(&folder.target, entry.target())
            .at("looking at", || folder.target_path(entry.target()))
    }

    /// Tells the observer of an entry that was made, if it wants to know.
    pub(crate) fn name_made(&self, folder: &DirPair, entry: &SourceEntry, backup: Option<&CStr>) {
        let observer = self.context.observer;
        if observer.lists() && !self.context.settings.dry_run {
            let from = folder.source_path(&entry.name);
            let backup = backup.map(|name| folder.target_path(name));
            observer.made(&from, &folder.target_path(entry.target()), backup.as_deref());
        }
    }

    /// Tells the observer that the file with the name of an entry is replaced, as if it had been
    /// removed.
    pub(crate) fn name_removed(&self, folder: &DirPair, entry: &SourceEntry) {
        let settings = &self.context.settings;
        let is_removed = settings.remove_destination && settings.backup.is_none();
        if is_removed && self.context.observer.lists() {
            self.context.observer.removed(&folder.target_path(entry.target()), false);
        }
    }

    /// Counts a file that is done.
    pub(crate) fn count_file(&self) {
        self.context.progress.files.fetch_add(1, Ordering::Relaxed);
    }
}

/// The size in bytes of the buffer for listings: some 2,000 names.
const LISTING: usize = 64 << 10;
