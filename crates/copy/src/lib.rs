//! Copies files and trees within one machine.
//!
//! [`copy`] copies its sources to a target, with the names that coreutils' `cp` would choose, and
//! [`copy_folder`] copies an open folder. Every copy gets its name when it is complete: files are
//! written unnamed (`O_TMPFILE`), and folders under a hidden name.
//!
//! The crate prints nothing, asks nothing and catches no signal: a [`CopyObserver`] does. The
//! result is a [`CopyOutcome`].
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use underpass_copy::{CopyObserver, CopyOptions, CopyTarget, copy};
//!
//! struct Silent;
//! impl CopyObserver for Silent {}
//!
//! # let temporary = tempfile::tempdir()?;
//! # let folder = temporary.path();
//! std::fs::write(folder.join("from"), "hello")?;
//! let (sources, to) = ([folder.join("from")], folder.join("to"));
//! let target = CopyTarget::NewName(&to);
//! let cancel = AtomicBool::new(false);
//! let outcome = copy(&CopyOptions::default(), &sources, target, &Silent, &cancel)?;
//! assert_eq!(outcome.totals.files, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("underpass-copy uses Linux system calls and needs Linux");

mod attributes;
mod context;
mod error;
mod files;
mod observer;
mod options;
mod outcome;
mod plan;
mod queue;
mod tree;
mod worker;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::FileType;

pub use attributes::times;
pub use error::{CopyError, CopyRefusal, Overlap};
#[cfg(feature = "ends")]
pub use files::ends;
pub use files::file_system::name as file_system_name;
pub use observer::{CopyObserver, CopyProgress, OpenCall};
pub use options::backup::{Backup, BackupControl};
pub use options::exclude::{ExcludePattern, PatternError};
pub use options::preserve::{Preserve, PreserveMode, PreserveTimes, PreserveXattrs};
pub use options::{CopyOptions, ExistingFiles, Follow, LinkKind, Verify, When, default_jobs};
pub use outcome::{BetweenSystems, CopyOutcome, CopyTotals};
pub use plan::CopyTarget;

use context::CopyContext;
use options::Settings;
use plan::CopyPlan;
use tree::dir_pair::{DirOrigin, DirPair};
use tree::hidden_names::NameUse;
use tree::task::FolderTask;
use tree::{hidden_names, merge, mirror};
use worker::CopyWorker;

/// Copies `sources` to `target`. A wait for another process ends when `cancel` is set, and so does
/// the copy.
///
/// # Errors
///
/// [`CopyError::Path`] if the target or the sole source cannot be opened, [`CopyError::Overlap`] or
/// [`CopyError::Refused`] if these paths cannot be combined. Later failures, and those of one
/// source of several, are in [`CopyOutcome::problems`], and everything else is copied.
///
/// # On failure
///
/// After an error nothing was copied. After problems, or a copy that was cancelled, each file that
/// has its name is complete, and each new folder that has its name has all files of its original
/// but those that the problems name. Incomplete entries have hidden names; a later copy resumes or
/// removes them, and the folders above them lack the times of their originals. Files that are
/// written in place ([`CopyOptions::in_place`]) may be a part.
pub fn copy(
    options: &CopyOptions,
    sources: &[PathBuf],
    target: CopyTarget<'_>,
    observer: &dyn CopyObserver,
    cancel: &AtomicBool,
) -> Result<CopyOutcome, CopyError> {
    let settings = Settings::new(options);
    let plan = CopyPlan::new(&settings, sources, target, observer)?;
    Ok(copy_plan(settings, plan, observer, cancel))
}

/// Copies the folder `from` with everything in it to the new name `name` in the folder `to`, for
/// callers that know both by their descriptors alone. Set
/// [`CopyOptions::recursive`], as for every folder.
///
/// # Errors
///
/// If there is no descriptor left. What fails later is in [`CopyOutcome::problems`].
pub fn copy_folder(
    options: &CopyOptions,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    name: &CStr,
    observer: &dyn CopyObserver,
    cancel: &AtomicBool,
) -> io::Result<CopyOutcome> {
    let plan = CopyPlan::of_folder(from, to, name)?;
    Ok(copy_plan(Settings::new(options), plan, observer, cancel))
}

/// Carries out the plan.
fn copy_plan(
    settings: Settings<'_>,
    plan: CopyPlan,
    observer: &dyn CopyObserver,
    cancel: &AtomicBool,
) -> CopyOutcome {
    // Answers that are piped in must match the order of the sources.
    let jobs = if settings.interactive { 1 } else { settings.jobs };
    let max_open_files = settings.max_open_files;
    let mut context = CopyContext::new(settings, plan.overlaps, observer, cancel);
    (context.levels, context.jobs) = queue::levels_and_jobs(max_open_files, jobs);
    context.link.clone_from(&plan.link);
    // A copy that removes no leftovers as it goes removes them at the end.
    context.keeps_leftovers = context.settings.recursive
        || context.settings.resume
        || plan.rounds.iter().flatten().any(|entry| hidden_names::is_hidden(entry.target()));
    if plan.rounds.len() > 1 {
        context.begin_to_remember();
    }
    let totals = copy_rounds(&context, plan);
    context.outcome(totals)
}

/// Copies everything, one round after the other.
fn copy_rounds(context: &CopyContext<'_>, mut plan: CopyPlan) -> CopyTotals {
    let sweeps = plan.sweeps;
    let rounds = std::mem::take(&mut plan.rounds);
    let named: Vec<_> = rounds.iter().flatten().map(|entry| entry.target().to_owned()).collect();
    let folders: Vec<_> = if context.settings.delete {
        rounds.iter().flatten().cloned().collect()
    } else {
        Vec::new()
    };
    let is_alone =
        named.len() == 1 && !rounds.iter().flatten().any(|it| it.kind == FileType::Directory);
    if named.len() > 1 {
        context.sole_folder.get_or_init(|| None);
    }
    let top = begin(context, plan, is_alone);
    for name in named.iter().filter(|name| hidden_names::is_hidden(name)) {
        context.hidden_names.take(&top.target, name, NameUse::Entry);
    }
    let mut totals = CopyTotals::default();
    for round in rounds {
        let is_single = matches!(round.as_slice(), [one] if one.kind != FileType::Directory);
        let jobs = if is_single { 1 } else { context.jobs };
        for entry in round.into_iter().rev() {
            top.hold(true);
            context.queue.push([FolderTask::Entries(Arc::clone(&top), vec![entry])]);
        }
        work(context, jobs, &mut totals);
    }
    if sweeps && context.is_complete() {
        merge::sweep(&context.settings, &context.hidden_names, &top, |name| {
            named.iter().any(|each| each.as_c_str() == name)
        });
    }
    let syncs = context.settings.sync && !context.settings.dry_run;
    if syncs {
        // Before anything is removed: the disk may turn out to have lost what was copied.
        context.sync(&top);
    }
    if context.settings.delete && context.is_complete() {
        totals.deleted = mirror::mirror(context, &top, &folders);
        if syncs && totals.deleted > 0 {
            context.sync(&top);
        }
    }
    totals
}

/// Runs all tasks on several threads, and reports the progress to the observer. If not all threads
/// can be started, fewer run; if none can, this one does all tasks.
fn work(context: &CopyContext<'_>, jobs: usize, totals: &mut CopyTotals) {
    thread::scope(|scope| {
        let start =
            |_| thread::Builder::new().spawn_scoped(scope, || CopyWorker::run(context)).ok();
        let workers: Vec<_> = (0..jobs).map_while(start).collect();
        if workers.is_empty() {
            totals.add(&CopyWorker::run(context));
        }
        // Tasks remain if all threads have panicked.
        while !context.queue.wait(PROGRESS_INTERVAL)
            && !workers.iter().all(|worker| worker.is_finished())
        {
            context.observer.progress(&context.progress.now());
        }
        for worker in workers {
            match worker.join() {
                Ok(did) => totals.add(&did),
                Err(_) => context.record_failure(CopyError::Panicked),
            }
        }
    });
}

/// Returns the folder that the sources are put in, and records what is known before the first task.
/// If `is_alone`, the only source is a file, so no name can be made twice.
fn begin(context: &CopyContext<'_>, plan: CopyPlan, is_alone: bool) -> Arc<DirPair> {
    let top = Arc::new(DirPair {
        source: plan.source,
        system: file_system_name(&plan.target),
        inherited: attributes::inherited::inherited(plan.target.as_fd()),
        target: plan.target,
        chain: Arc::new(plan.chain),
        parent: None,
        top: None,
        depth: 0,
        stat: None,
        origin: DirOrigin::Existing,
        is_trusted: false,
        is_closed: false,
        device: None,
        made: DirOrigin::Existing.nothing_made().filter(|_| !is_alone),
        is_refused: AtomicBool::new(false),
        own: AtomicUsize::new(1),
        all: AtomicUsize::new(1),
    });
    context.target.get_or_init(|| Arc::clone(&top));
    if let Some(len) = plan.len {
        context.progress.expected.store(len, Ordering::Relaxed);
    }
    for failure in plan.problems {
        context.record_failure(failure);
    }
    context.open_for_sync(&top);
    top
}

/// The interval at which progress is reported to the observer.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
