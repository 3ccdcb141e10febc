//! The state that all threads of a copy share.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use rustix::fs::{Access, AtFlags, Stat, accessat, fstat, fsync, statat, syncfs, unlinkat};
use rustix::io::Errno;
use underpass_engine::hint::Action;
use underpass_engine::wait::{lock, unpoison};
use underpass_engine::{Capabilities, FileId, is_file, mount_epoch};

use crate::attributes;
use crate::error::{At, CopyError, CopyRefusal, Overlap, Problems, Result};
use crate::files::file_system::FUSE;
use crate::files::folder::open_folder;
use crate::files::replace::Backups;
use crate::observer::{CopyObserver, CopyProgress};
use crate::options::{ExistingFiles, Settings};
use crate::outcome::{CopyOutcome, CopyTotals};
use crate::queue::WorkQueue;
use crate::tree::dir_pair::{DirOrigin, DirPair, MadeFiles};
use crate::tree::hidden_names::{self, HiddenNamesInUse};
use crate::tree::link_table::LinkTable;
use crate::tree::merge::Clash;
use crate::tree::task::FolderTask;
use crate::tree::{marker, merge};

/// The state that all threads of a copy share.
pub(crate) struct CopyContext<'a> {
    pub(crate) settings: Settings<'a>,
    pub(crate) queue: WorkQueue<FolderTask>,
    pub(crate) links: LinkTable,
    pub(crate) capabilities: Capabilities,
    pub(crate) observer: &'a dyn CopyObserver,
    pub(crate) cancel: &'a AtomicBool,
    /// The number of threads that copy.
    pub(crate) jobs: usize,
    /// The number of tree levels that each thread may have open.
    pub(crate) levels: usize,
    /// Set when a task or entry was not begun because the copy was cancelled or is over.
    skipped: AtomicBool,
    /// Set when nothing more can be copied.
    is_over: AtomicBool,
    problems: Mutex<Problems>,
    /// The folder that the sources are put in.
    pub(crate) target: OnceLock<Arc<DirPair>>,
    /// The target as it was given, if it is a link to the file that the only source is copied to.
    pub(crate) link: Option<PathBuf>,
    /// The folder that the only source is copied to; `None` if there are several.
    pub(crate) sole_folder: OnceLock<Option<OwnedFd>>,
    /// Held while the observer answers a question.
    questions: Mutex<()>,
    /// Each folder that a source is copied to.
    pub(crate) made: Mutex<Vec<FileId>>,
    /// Each source that is a folder, where targets become mirrors.
    entered: Mutex<Vec<FileId>>,
    /// Path of the copy and device of each file system that was mounted below a source, where
    /// targets become mirrors.
    mounts: Mutex<Vec<(PathBuf, u64)>>,
    /// Whether copies are remembered, because a later round may want to replace them, or because
    /// two folders may have one target.
    remembers: AtomicBool,
    /// The boot id, if it matters and is known.
    pub(crate) boot: Option<String>,
    /// Whether new files [keep
    /// leftovers](underpass_engine::atomic_file::AtomicFile::keeping_leftovers): an entry with a
    /// hidden name may be one that this run copies.
    pub(crate) keeps_leftovers: bool,
    /// The hidden names that this run uses.
    pub(crate) hidden_names: HiddenNamesInUse,
    /// The remembered copies, without their names.
    remembered: Mutex<MadeFiles>,
    /// Device, descriptor and path of each file system that is written to, if all is synced.
    written: Mutex<Vec<(u64, OwnedFd, PathBuf)>>,
    pub(crate) progress: ObservedProgress,
    /// Number of folders whose owner could not be kept.
    without_owner: AtomicU64,
    /// Number of folders whose extended attributes could not be kept.
    without_attributes: AtomicU64,
    /// The first file that was written in place because it could not be replaced.
    pub(crate) in_place: OnceLock<PathBuf>,
    /// The first file that was copied again because it changed.
    pub(crate) copied_again: OnceLock<PathBuf>,
}

/// The progress of the copy.
#[derive(Debug)]
pub(crate) struct ObservedProgress {
    pub(crate) files: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Total bytes; 0 if that is not known.
    pub(crate) expected: AtomicU64,
    started: Instant,
}

impl ObservedProgress {
    fn new() -> Self {
        let (files, bytes, expected) = Default::default();
        Self { files, bytes, expected, started: Instant::now() }
    }

    /// Returns a snapshot for the observer.
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

impl<'a> CopyContext<'a> {
    /// Starts a copy of sources that may overlap, of which nothing is done yet.
    pub(crate) fn new(
        settings: Settings<'a>,
        overlaps: bool,
        observer: &'a dyn CopyObserver,
        cancel: &'a AtomicBool,
    ) -> Self {
        Self {
            links: LinkTable::new(settings.follow, overlaps),
            boot: settings.resume.then(mount_epoch::boot_id).flatten(),
            settings,
            queue: WorkQueue::new(FolderTask::busy_key),
            capabilities: Capabilities::new(),
            observer,
            cancel,
            jobs: 1,
            keeps_leftovers: true,
            levels: usize::MAX,
            skipped: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            problems: Mutex::default(),
            target: OnceLock::new(),
            link: None,
            sole_folder: OnceLock::new(),
            questions: Mutex::default(),
            made: Mutex::default(),
            entered: Mutex::default(),
            mounts: Mutex::default(),
            remembers: AtomicBool::new(false),
            remembered: Mutex::default(),
            hidden_names: HiddenNamesInUse::default(),
            written: Mutex::default(),
            progress: ObservedProgress::new(),
            without_owner: AtomicU64::new(0),
            without_attributes: AtomicU64::new(0),
            in_place: OnceLock::new(),
            copied_again: OnceLock::new(),
        }
    }

    /// Returns whether the next task or entry must not be begun, and remembers that.
    pub(crate) fn skips(&self) -> bool {
        let is_over = self.is_over();
        if is_over {
            self.skipped.store(true, Ordering::Relaxed);
        }
        is_over
    }

    /// Returns whether some entry was not begun, or failed because all of them would, and the
    /// caller does not remove its unfinished copy.
    fn is_cut_short(&self) -> bool {
        let is_over = self.skipped.load(Ordering::Relaxed) || self.is_over.load(Ordering::Relaxed);
        is_over && !self.settings.stop_early
    }

    /// Returns whether nothing more is begun.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.cancel.load(Ordering::Relaxed)
    }

    /// Remembers all copies from here on.
    pub(crate) fn begin_to_remember(&self) {
        self.remembers.store(true, Ordering::Relaxed);
    }

    /// Returns the backups of entries that are replaced in a folder; none if the folder is new.
    pub(crate) fn backups_in(&self, folder: &DirPair) -> Option<&Backups<'_>> {
        self.settings.backups.as_ref().filter(|_| folder.origin != DirOrigin::Fresh)
    }

    /// Returns the remembered copies, if copies are remembered.
    pub(crate) fn remembered(&self) -> Option<&Mutex<MadeFiles>> {
        self.remembers.load(Ordering::Relaxed).then_some(&self.remembered)
    }

    /// Asks the observer whether a file may be replaced, if the options want that: one question at
    /// a time.
    pub(crate) fn may_replace(&self, path: impl FnOnce() -> PathBuf) -> Result<bool> {
        if !self.settings.interactive || self.settings.dry_run {
            return Ok(true);
        }
        let _guard = lock(&self.questions);
        let path = path();
        self.observer.may_replace(&path).at("asking about", || path)
    }

    /// Remembers a source that is a folder, if other entries of its target are to be removed.
    pub(crate) fn note_source_folder(&self, source: FileId) {
        if self.settings.delete {
            lock(&self.entered).push(source);
        }
    }

    /// Remembers the path of the copy of a file system that is mounted below a source.
    pub(crate) fn note_mount(&self, target: PathBuf, device: u64) {
        lock(&self.mounts).push((target, device));
    }

    /// Returns whether one of the file systems whose copies have this path is not among `devices`.
    /// Without any device the folder does not exist, so those further below count, too.
    pub(crate) fn misses_mount(&self, target: &Path, devices: &[u64]) -> bool {
        let mounts = lock(&self.mounts);
        mounts.iter().any(|(path, device)| match path.strip_prefix(target) {
            Ok(rest) if rest.as_os_str().is_empty() => !devices.contains(device),
            Ok(_) => devices.is_empty(),
            Err(_) => false,
        })
    }

    /// Returns whether a folder was a source.
    pub(crate) fn has_entered(&self, folder: FileId) -> bool {
        lock(&self.entered).contains(&folder)
    }

    /// Returns whether this copy has made a file and remembers that.
    pub(crate) fn has_made(&self, stat: &Stat) -> bool {
        self.remembered().map(lock).is_some_and(|it| it.has(stat))
    }

    /// Records an entry that could not be copied. The copy goes on, unless all of the rest would
    /// fail in the same way.
    pub(crate) fn record_failure(&self, failure: CopyError) {
        let sole_folder = self.sole_folder.get().and_then(Option::as_ref);
        let folder = sole_folder.or_else(|| self.target.get().map(|top| &top.target));
        if folder.is_some_and(|folder| failure.fails_all(folder)) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        self.record_problem(failure);
    }

    /// Records that something could not be copied, or that a copy lacks something. The rest goes
    /// on.
    pub(crate) fn record_problem(&self, failure: CopyError) {
        let is_target = matches!(failure, CopyError::Overlap(Overlap::IsTarget { .. }));
        if self.settings.stop_early && !is_target {
            self.is_over.store(true, Ordering::Relaxed);
        }
        lock(&self.problems).push(failure);
    }

    /// Records a failure to remove the mark of an incomplete copy.
    pub(crate) fn check_unmarked(&self, done: Result<(), Errno>, path: impl FnOnce() -> PathBuf) {
        if let Err(failure) = done.at("removing the mark of", path) {
            self.record_problem(failure);
        }
    }

    /// Returns the outcome, with what all threads have done.
    pub(crate) fn outcome(self, mut totals: CopyTotals) -> CopyOutcome {
        let is_cancelled = self.cancel.load(Ordering::Relaxed);
        // A caller that cancels, or stops at the first problem, knows that the rest was not begun.
        let knows = is_cancelled || self.settings.stop_early;
        if self.skipped.load(Ordering::Relaxed) && (!knows || lock(&self.problems).count == 0) {
            let why = if is_cancelled { CopyError::Cancelled } else { CopyError::Ended };
            self.record_failure(why);
        }
        let problems = unpoison(self.problems.into_inner());
        totals.without_owner += self.without_owner.into_inner();
        totals.without_attributes += self.without_attributes.into_inner();
        CopyOutcome {
            totals,
            problems: problems.failures,
            problem_count: problems.count,
            in_place: self.in_place.into_inner(),
            copied_again: self.copied_again.into_inner(),
            jobs: self.jobs,
        }
    }

    /// Opens the file system of a folder for [`sync`](Self::sync), before anything is written to
    /// it: syncfs(2) reports an error to the descriptors that were open when it occurred, and to
    /// one that was opened later only if it was not reported yet.
    pub(crate) fn open_for_sync(&self, folder: &DirPair) {
        if !self.settings.sync || self.settings.dry_run || folder.system == FUSE {
            return;
        }
        let path = || folder.target_path(c"");
        let opened = fstat(&folder.target).and_then(|stat| {
            let mut written = lock(&self.written);
            if !written.iter().any(|(device, ..)| *device == stat.st_dev) {
                let opened = open_folder(folder.target.as_fd(), c".")?;
                written.push((stat.st_dev, opened, path()));
            }
            Ok(())
        });
        if let Err(failure) = opened.at(SYNCING, path) {
            self.record_failure(failure);
        }
    }

    /// Waits until everything is on the disk, and returns whether that succeeded.
    pub(crate) fn sync(&self, folder: &DirPair) -> bool {
        let mut is_synced = folder.system != FUSE || self.sync_names(folder);
        for (_, written, path) in &*lock(&self.written) {
            if let Err(failure) = syncfs(written).at(SYNCING, || path.clone()) {
                is_synced = false;
                self.record_failure(failure);
            }
        }
        is_synced
    }

    /// Waits until the names in a folder are on the disk, and returns whether that succeeded. Only
    /// FUSE needs it, where files and folders are synced one by one.
    fn sync_names(&self, folder: &DirPair) -> bool {
        let synced = open_folder(folder.as_fd(), c".").and_then(fsync);
        let synced = synced.at(SYNCING, || folder.target_path(c""));
        synced.map_err(|failure| self.record_failure(failure)).is_ok()
    }

    /// Records the end of a task that a folder waited for. After the last of its own entries
    /// the folder gets its name; after the last of all its mode and times, and then the folder
    /// above may be done, too.
    pub(crate) fn release(&self, folder: &Arc<DirPair>, is_own: bool) {
        if is_own && folder.own.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.give_name(folder);
        }
        let mut folder = Arc::clone(folder);
        while folder.all.fetch_sub(1, Ordering::AcqRel) == 1 {
            if folder.origin != DirOrigin::Fresh && self.is_complete() {
                merge::sweep(&self.settings, &self.hidden_names, &folder, |name| {
                    statat(&folder.source, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
                });
            }
            self.finish(&folder);
            if self.settings.sync && folder.system == FUSE && !self.settings.dry_run {
                self.sync_names(&folder);
            }
            self.unmark(&folder);
            self.merge_into_target(&folder);
            let Some(parent) = folder.parent.clone() else { return };
            folder = parent;
        }
    }

    /// Gives a folder the attributes of its original. One that still has a hidden name gets none: a
    /// later run resumes it, or it is merged into another one.
    fn finish(&self, folder: &DirPair) {
        let is_hidden = lock(&folder.chain.hidden).is_some();
        let settings = &self.settings;
        let changes =
            folder.origin.is_new() || settings.preserve.changes_folders() || settings.resume;
        let Some(stat) = folder.stat.filter(|_| changes && !is_hidden && !settings.dry_run) else {
            return;
        };
        let finished = attributes::finish_folder(
            settings,
            folder.source.as_fd(),
            folder.target.as_fd(),
            folder.origin.is_new(),
            folder.inherited,
            &stat,
            !self.is_cut_short(),
        );
        let (has_owner, has_attributes) = (finished.has_owner, finished.has_attributes);
        self.without_owner.fetch_add(u64::from(!has_owner), Ordering::Relaxed);
        self.without_attributes.fetch_add(u64::from(!has_attributes), Ordering::Relaxed);
        if let Some(failure) = finished.missing.failure(|| folder.target_path(c"")) {
            self.record_problem(failure);
        }
    }

    /// Returns whether everything could be copied so far.
    pub(crate) fn is_complete(&self) -> bool {
        let problems = lock(&self.problems);
        problems.count == 0 && !self.is_over()
    }

    /// Removes the marker of a source's folder once nothing in it is missing.
    fn unmark(&self, folder: &DirPair) {
        let is_top = folder.parent.as_ref().is_some_and(|parent| parent.is_top());
        if self.settings.resume && is_top && !self.settings.dry_run && self.is_complete() {
            // Without the mark, a repeated command would copy to another place.
            if self.settings.sync && !self.sync(folder) {
                return;
            }
            let stat = folder.stat.as_ref().filter(|_| self.settings.preserve.keeps_times());
            let removed = marker::remove(&folder.target, &folder.source, stat);
            self.check_unmarked(removed, || folder.target_path(c""));
        }
    }

    /// Merges a complete folder into another one if another process has taken its name.
    fn merge_into_target(&self, folder: &DirPair) {
        self.name_hidden(folder, |parent, hidden| {
            let mut problems = Vec::new();
            let merged = self
                .merge_into(folder, parent, &mut problems)
                .and_then(|()| unlinkat(&parent.target, hidden, AtFlags::REMOVEDIR));
            problems.into_iter().for_each(|problem| self.record_failure(problem));
            merged.map(|()| true)
        });
    }

    /// Moves the contents of a hidden folder into the one that has taken its name. `problems` has
    /// the reasons why entries there stay although they were to be replaced.
    fn merge_into(
        &self,
        folder: &DirPair,
        parent: &DirPair,
        problems: &mut Vec<CopyError>,
    ) -> Result<(), Errno> {
        let from = open_folder(&folder.target, c".")?;
        let there = open_folder(&parent.target, &folder.chain.target)?;
        let mut stays = |clash: &Clash<'_>| match self.may_take_name(folder, clash) {
            Ok(may_replace) => !may_replace,
            Err(problem) => {
                problems.push(problem);
                true
            }
        };
        merge::merge(&self.settings, from, there, folder.stat.as_ref(), &mut stays)
    }

    /// Returns whether a file gives way to an entry that comes out of a hidden folder. Without force
    /// it has to be writable, also for a link, which would have replaced it had it been there before.
    fn may_take_name(&self, folder: &DirPair, clash: &Clash<'_>) -> Result<bool> {
        let settings = &self.settings;
        let to = || folder.target_path(c"").join(clash.path);
        if self.has_made(clash.there) {
            let from = folder.source_path(c"").join(clash.path);
            return Err(CopyError::Refused(CopyRefusal::JustMade { from, to: to() }));
        }
        if settings.existing == ExistingFiles::Refuse {
            return Err(CopyError::Refused(CopyRefusal::Exists { to: to() }));
        }
        let is_file = is_file(clash.there);
        if is_file && !settings.force && !settings.removes_existing() {
            let access = accessat(clash.folder, clash.name, Access::WRITE_OK, AtFlags::EACCESS);
            access.at(Action::Replacing, to)?;
        }
        self.may_replace(to)
    }

    /// Gives a folder its name, if it still has a hidden one.
    fn give_name(&self, folder: &DirPair) {
        self.name_hidden(folder, |parent, hidden| {
            let (from, to) = (folder.source.as_fd(), folder.as_fd());
            attributes::open_to_others(&self.settings, from, to, folder.inherited);
            match merge::rename_new(parent, hidden, &folder.chain.target) {
                // Another process was faster: see `merge_into_target`.
                Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(false),
                renamed => {
                    renamed?;
                    let unmarked = hidden_names::unmark(&folder.target);
                    self.check_unmarked(unmarked, || folder.target_path(c""));
                    Ok(true)
                }
            }
        });
    }

    /// Calls `rename` with the parent and the hidden name of a folder, if it has one; `rename`
    /// returns whether that name is gone. A folder that lacks entries because the copy was cut
    /// short keeps the hidden name, as after a kill, and so does one whose name was refused.
    fn name_hidden(
        &self,
        folder: &DirPair,
        rename: impl FnOnce(&DirPair, &CStr) -> Result<bool, Errno>,
    ) {
        if self.is_cut_short() || folder.is_refused.load(Ordering::Relaxed) {
            return;
        }
        let mut hidden = lock(&folder.chain.hidden);
        let (Some(name), Some(parent)) = (&*hidden, &folder.parent) else { return };
        match rename(parent, name).at("naming", || parent.target_path(&folder.chain.target)) {
            Ok(true) => {
                self.hidden_names.give_back(&parent.target, name);
                *hidden = None;
            }
            Ok(false) => {}
            Err(failure) => {
                folder.is_refused.store(true, Ordering::Relaxed);
                self.record_failure(failure);
            }
        }
    }
}

/// The action in messages about syncing.
pub(crate) const SYNCING: &str = "writing to the disk of";
