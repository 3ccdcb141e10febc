//! One command: what all of its threads share.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use std::time::Instant;

use rustix::fs::{AtFlags, Mode, OFlags, Stat, openat, statat, syncfs, unlinkat};
use rustix::io::Errno;
use underpass_engine::{Capabilities, Error};

use crate::crew::Stack;
use crate::error::{At, CopyError};
use crate::folder::{Folder, State};
use crate::links::Links;
use crate::observer::{CopyObserver, CopyProgress};
use crate::options::Settings;
use crate::outcome::{CopyOutcome, CopyTotals};
use crate::{marker, metadata, session, settle};

/// One command.
pub(crate) struct Job<'a> {
    pub(crate) settings: Settings<'a>,
    pub(crate) stack: Stack,
    pub(crate) links: Links,
    pub(crate) capabilities: Capabilities,
    pub(crate) observer: &'a dyn CopyObserver,
    pub(crate) cancel: &'a AtomicBool,
    /// How many threads copy.
    pub(crate) jobs: usize,
    /// How many levels of a tree may be open at a time, for each thread.
    pub(crate) levels: usize,
    /// Set when nothing more can be copied.
    is_over: AtomicBool,
    problems: Mutex<Problems>,
    /// Held while a question is asked.
    questions: Mutex<()>,
    /// Folders that were made or written to at the top: device and number of each.
    pub(crate) made: Mutex<Vec<(u64, u64)>>,
    /// Whether what is made has to be remembered, for it might be replaced by what comes later.
    pub(crate) remembers: bool,
    /// Which run of the machine this is, if that matters and is known.
    pub(crate) boot: Option<String>,
    /// What was made then: device and number of each.
    remembered: Mutex<HashSet<(u64, u64)>>,
    pub(crate) progress: Progress,
    /// Folders whose owner, and whose attributes could not be kept.
    pub(crate) unkept: [AtomicU64; 2],
    /// The first file that was written in place because it could not be replaced.
    pub(crate) in_place: OnceLock<PathBuf>,
    /// The first file that was copied again because it changed.
    pub(crate) copied_again: OnceLock<PathBuf>,
}

/// How far it is, for those who watch.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) files: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Bytes in all; 0 if that is not known.
    pub(crate) expected: AtomicU64,
    started: Instant,
}

impl Progress {
    fn new() -> Self {
        let (files, bytes, expected) = Default::default();
        Self { files, bytes, expected, started: Instant::now() }
    }

    /// The same as a value.
    pub(crate) fn now(&self) -> CopyProgress {
        let expected = self.expected.load(Ordering::Relaxed);
        CopyProgress {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            expected: Some(expected).filter(|&expected| expected > 0),
            elapsed: self.started.elapsed(),
        }
    }
}

/// What went wrong.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    pub(crate) failures: Vec<CopyError>,
    pub(crate) count: usize,
}

impl<'a> Job<'a> {
    /// Nothing is done yet.
    pub(crate) fn new(
        settings: Settings<'a>,
        observer: &'a dyn CopyObserver,
        cancel: &'a AtomicBool,
    ) -> Self {
        Self {
            links: Links::new(settings.follow),
            boot: settings.resume.then(session::boot_id).flatten(),
            settings,
            stack: Stack::default(),
            capabilities: Capabilities::new(),
            observer,
            cancel,
            jobs: 1,
            levels: usize::MAX,
            is_over: AtomicBool::new(false),
            problems: Mutex::default(),
            questions: Mutex::default(),
            made: Mutex::default(),
            remembers: false,
            remembered: Mutex::default(),
            progress: Progress::new(),
            unkept: Default::default(),
            in_place: OnceLock::new(),
            copied_again: OnceLock::new(),
        }
    }

    /// Whether no more is to be begun.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.cancel.load(Ordering::Relaxed)
    }

    /// Remembers what was made, if that has to be.
    pub(crate) fn remember(&self, stat: impl FnOnce() -> Result<Stat, Errno>) {
        if self.remembers
            && let Ok(stat) = stat()
        {
            self.lock_remembered().insert((stat.st_dev, stat.st_ino));
        }
    }

    /// Whether a file may be replaced, which somebody may have to be asked: one question at a time.
    pub(crate) fn may_replace(&self, path: impl FnOnce() -> PathBuf) -> Result<bool, CopyError> {
        if !self.settings.interactive || self.settings.dry_run {
            return Ok(true);
        }
        let _turn = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        let path = path();
        self.observer.may_replace(&path).at("asking about", || path)
    }

    /// Whether this command has made it.
    pub(crate) fn has_made(&self, stat: &Stat) -> bool {
        self.remembers && self.lock_remembered().contains(&(stat.st_dev, stat.st_ino))
    }

    fn lock_remembered(&self) -> MutexGuard<'_, HashSet<(u64, u64)>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what went wrong. The rest goes on, unless all of it would go the same way.
    pub(crate) fn problem(&self, failure: CopyError) {
        if ends_all(&failure) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        problems.count += 1;
        if problems.failures.len() < KEPT_PROBLEMS {
            problems.failures.push(failure);
        }
    }

    /// What came of it, with what was done by all threads.
    pub(crate) fn outcome(self, mut totals: CopyTotals) -> CopyOutcome {
        let problems = self.problems.into_inner().unwrap_or_else(PoisonError::into_inner);
        let [owners, attributes] = self.unkept.map(AtomicU64::into_inner);
        totals.without_owner += owners;
        totals.without_attributes += attributes;
        CopyOutcome {
            totals,
            problems: problems.failures,
            problem_count: problems.count,
            in_place: self.in_place.into_inner(),
            copied_again: self.copied_again.into_inner(),
            jobs: self.jobs,
        }
    }

    /// Writes everything to the disk; returns whether that went well.
    pub(crate) fn sync(&self, top: &Folder) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let synced = openat(top.as_fd(), ".", flags, Mode::empty()).and_then(syncfs);
        let synced = synced.at("writing to the disk of", || top.target_path(c""));
        synced.map_err(|failure| self.problem(failure)).is_ok()
    }

    /// Something that a folder waited for is done. The last of its own entries gives it its name;
    /// the last of all its mode and times, and then the folder above may be done, too.
    pub(crate) fn release(&self, folder: &Arc<Folder>, is_own: bool) {
        if is_own && folder.own.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.give_name(folder);
        }
        let mut folder = Arc::clone(folder);
        while folder.all.fetch_sub(1, Ordering::AcqRel) == 1 {
            if folder.state == State::Existing && self.is_complete() {
                settle::sweep(&self.settings, &folder, |name| {
                    statat(&folder.source, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
                });
            }
            if let Some(stat) = folder.stat.filter(|_| !self.settings.dry_run)
                && (folder.state.is_new() || self.settings.preserve || self.settings.resume)
            {
                let (has_owner, has_attributes, lacking) =
                    metadata::finish_folder(&self.settings, &folder, &stat);
                let [owners, attributes] = &self.unkept;
                owners.fetch_add(u64::from(!has_owner), Ordering::Relaxed);
                attributes.fetch_add(u64::from(!has_attributes), Ordering::Relaxed);
                if let Some(failure) = lacking.failure(|| folder.target_path(c"")) {
                    self.problem(failure);
                }
            }
            self.unmark(&folder);
            self.settle(&folder);
            let Some(parent) = folder.parent.clone() else { return };
            folder = parent;
        }
    }

    /// Whether nothing has been missing so far.
    pub(crate) fn is_complete(&self) -> bool {
        let problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        problems.count == 0 && !self.is_over()
    }

    /// Takes away the mark of a folder that was named, once nothing in it is missing.
    fn unmark(&self, folder: &Folder) {
        let is_top = folder.parent.as_ref().is_some_and(|parent| parent.parent.is_none());
        if self.settings.resume && is_top && !self.settings.dry_run && self.is_complete() {
            // Without the mark a repeated command would mean something else.
            if self.settings.sync && !self.sync(folder) {
                return;
            }
            marker::remove(&folder.target, &folder.source, folder.stat.as_ref());
        }
    }

    /// Everything in a folder is done: if another process has taken its name meanwhile, what is in it
    /// goes there.
    fn settle(&self, folder: &Folder) {
        let mut hidden = folder.trail.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(name), Some(parent)) = (&*hidden, &folder.parent) else { return };
        let merged = merge_into(&self.settings, folder, parent)
            .and_then(|()| unlinkat(&parent.target, name, AtFlags::REMOVEDIR));
        match merged {
            Ok(()) => *hidden = None,
            Err(errno) => {
                let path = parent.target_path(&folder.trail.target);
                self.problem(CopyError::Path {
                    action: "naming".into(),
                    path,
                    source: errno.into(),
                });
            }
        }
    }

    /// Gives a folder its name, if it has another one until now.
    fn give_name(&self, folder: &Folder) {
        let mut hidden = folder.trail.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(name), Some(parent)) = (&*hidden, &folder.parent) else { return };
        let target = &folder.trail.target;
        match rename_new(parent, name, target) {
            Ok(()) => *hidden = None,
            // Another process was faster: see `settle`.
            Err(Errno::EXIST | Errno::NOTEMPTY) => {}
            Err(errno) => {
                let path = parent.target_path(target);
                self.problem(CopyError::Path {
                    action: "naming".into(),
                    path,
                    source: errno.into(),
                });
            }
        }
    }
}

/// Moves what is in a hidden folder to where its name was taken, and removes the folder.
fn merge_into(settings: &Settings<'_>, folder: &Folder, parent: &Folder) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = openat(&parent.target, &folder.trail.target, flags, Mode::empty())?;
    settle::merge(settings, &folder.target, &there)
}

/// Renames without replacing anything.
fn rename_new(parent: &Folder, from: &std::ffi::CStr, to: &std::ffi::CStr) -> Result<(), Errno> {
    let target = &parent.target;
    if parent.state == State::Fresh {
        return rustix::fs::renameat(target, from, target, to);
    }
    underpass_engine::atomic_file::rename_new(target, from, target, to)
}

/// Whether everything else would fail in the same way.
fn ends_all(failure: &CopyError) -> bool {
    let source = match failure {
        CopyError::Transfer { source: Error::Io { source, .. }, .. } => source,
        CopyError::Transfer { source: Error::Cancelled { .. }, .. } => return true,
        CopyError::Path { source, .. } => source,
        _ => return false,
    };
    matches!(Errno::from_io_error(source), Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS))
}

/// So many problems are told one by one; of more only the number.
const KEPT_PROBLEMS: usize = 1000;
