//! One thread: takes what is to be done, and does it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType, Stat, statat};
use underpass_engine::Usage;
use underpass_engine::buffered::BUFFER;

use crate::crew::Task;
use crate::error::At;
use crate::error::CopyError;
use crate::folder::{Entry, Folder, State};
use crate::job::Job;
use crate::options::Follow;
use crate::outcome::CopyTotals;
use underpass_engine::hint::Action;

/// One thread.
pub(crate) struct Worker<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) totals: CopyTotals,
    /// For small files, and for what is compared.
    pub(crate) buffer: Vec<u8>,
    /// For listings.
    pub(crate) listing: Vec<u8>,
    /// The file system that was asked for its name last.
    pub(crate) system: Option<(u64, &'static str)>,
}

impl<'a> Worker<'a> {
    /// Works until nothing is left, and returns what it has done.
    pub(crate) fn run(job: &'a Job<'a>) -> CopyTotals {
        let mut worker = Self {
            job,
            totals: CopyTotals::default(),
            buffer: vec![0; BUFFER],
            listing: Vec::with_capacity(LISTING),
            system: None,
        };
        let before = Usage::of_this_thread();
        while let Some((task, taken)) = job.stack.take() {
            let (folder, is_own) = task.folder();
            if !job.is_over() {
                worker.perform(task);
            }
            job.release(&folder, is_own);
            job.stack.done(taken);
        }
        worker.totals.usage = Usage::of_this_thread() - before;
        worker.totals
    }

    fn perform(&mut self, task: Task) {
        match task {
            Task::Read(folder) => self.note(|worker| worker.read(&folder)),
            Task::Enter(folder, entry) => self.note(|worker| worker.enter(&folder, &entry)),
            Task::Later(later) => self.note(|worker| worker.go_on(&later)),
            Task::Entries(folder, entries) => {
                for entry in &entries {
                    if self.job.is_over() {
                        return;
                    }
                    self.note(|worker| worker.entry(&folder, entry));
                }
            }
        }
    }

    /// Does something; what goes wrong with it is noted.
    pub(crate) fn note(&mut self, work: impl FnOnce(&mut Self) -> Result<(), CopyError>) {
        if let Err(failure) = work(self) {
            self.job.problem(failure);
        }
    }

    /// Copies one thing, whatever it is.
    pub(crate) fn entry(&mut self, folder: &Arc<Folder>, entry: &Entry) -> Result<(), CopyError> {
        let kind = match entry.kind {
            FileType::Unknown => self.kind(folder, entry)?,
            FileType::Symlink if entry.follows => self.kind(folder, entry)?,
            kind => kind,
        };
        let recursive = self.job.settings.recursive;
        match kind {
            FileType::Directory if recursive => {
                folder.hold(false);
                let entry = Entry { kind, ..entry.clone() };
                self.job.stack.push([Task::Enter(Arc::clone(folder), entry)]);
                Ok(())
            }
            FileType::Directory => {
                let path = || folder.source_path(&entry.name);
                Err(rustix::io::Errno::ISDIR).at(Action::ReadingFolder, path)
            }
            FileType::RegularFile => self.file(folder, entry),
            FileType::Symlink => self.link(folder, entry),
            // Without -r they are read, as every other program would do.
            _ if !recursive => self.file(folder, entry),
            _ => self.special(folder, entry),
        }
    }

    /// What an entry is, by its facts.
    fn kind(&self, folder: &Folder, entry: &Entry) -> Result<FileType, CopyError> {
        let stat = self.stat(folder, entry)?;
        Ok(FileType::from_raw_mode(stat.st_mode))
    }

    /// The facts of what is to be copied.
    pub(crate) fn stat(&self, folder: &Folder, entry: &Entry) -> Result<Stat, CopyError> {
        let flags = if entry.follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let path = || folder.source_path(&entry.name);
        statat(&folder.source, &entry.name, flags).at("looking at", path)
    }

    /// What has the name in the target now; `None` if nothing has.
    pub(crate) fn target_stat(
        &self,
        folder: &Folder,
        entry: &Entry,
    ) -> Result<Option<Stat>, CopyError> {
        if folder.state == State::Fresh {
            return Ok(None);
        }
        match statat(&folder.target, entry.target(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno).at("looking at", || folder.target_path(entry.target())),
        }
    }

    /// In a dry run, tells what would be copied; true then.
    pub(crate) fn is_dry(&mut self, folder: &Folder, entry: &Entry) -> bool {
        let settings = &self.job.settings;
        if !settings.dry_run {
            return false;
        }
        let from = folder.source_path(&entry.name);
        let to = folder.target_path(entry.target());
        self.job.observer.would_copy(&from, &to);
        true
    }

    /// One more file is done.
    pub(crate) fn count_file(&self) {
        self.job.progress.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a link that was named is followed.
    pub(crate) fn follows_named(follow: Follow) -> bool {
        follow != Follow::Never
    }
}

/// Some 2,000 names.
const LISTING: usize = 64 << 10;
