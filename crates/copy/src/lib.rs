//! Copies files and trees within one machine.
//!
//! [`copy`] copies what it is given to a target, as coreutils' `cp` would name it there. Everything
//! that is copied appears under its name when it is whole: files are written without a name, and
//! folders under a hidden one.
//!
//! The crate prints nothing, asks nothing and catches no signal: a [`CopyObserver`] does. What was
//! done is a [`CopyOutcome`].

#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("underpass-copy is about Linux system calls and needs Linux");

mod again;
mod content;
mod crew;
mod error;
mod exclude;
mod file;
mod folder;
mod job;
mod later;
mod links;
mod marker;
mod metadata;
mod names;
mod observer;
mod options;
mod outcome;
mod paths;
pub mod permissions;
mod place;
mod same;
mod session;
mod settle;
mod special;
mod system;
mod verify;
mod walk;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::FileType;

pub use error::{CopyError, Refusal};
pub use exclude::{ExcludePattern, PatternError};
pub use metadata::times;
pub use observer::{CopyObserver, CopyProgress, OpenCall};
pub use options::{CopyOptions, Follow, Verify, When, default_jobs};
pub use outcome::{BetweenSystems, CopyOutcome, CopyTotals};
pub use system::name as file_system_name;

use crew::Task;
use folder::Folder;
use job::Job;
use options::Settings;
use paths::Plan;
use worker::Worker;

/// Where to copy to.
#[derive(Clone, Copy, Debug)]
pub enum CopyTarget<'a> {
    /// A folder in which every source keeps its name.
    Folder(&'a Path),
    /// The new name of the one source.
    NewName(&'a Path),
    /// A folder if there is one of that name, or else a new name.
    Either(&'a Path),
}

/// Copies `sources` to `target`. A wait for another process ends when `cancel` is set, and so does
/// the copy.
///
/// The umask of the process has to be 0 meanwhile.
///
/// # Errors
///
/// If nothing can be copied because of what the paths mean. What fails later is in
/// [`CopyOutcome::problems`], and everything else is copied.
pub fn copy(
    options: &CopyOptions,
    sources: &[PathBuf],
    target: CopyTarget<'_>,
    observer: &dyn CopyObserver,
    cancel: &AtomicBool,
) -> Result<CopyOutcome, CopyError> {
    let settings = Settings::new(options);
    let plan = paths::understand(&settings, sources, target, observer)?;
    let mut job = Job::new(settings, observer, cancel);
    (job.levels, job.jobs) = later::levels(options.max_open_files, options.jobs);
    job.remembers = plan.turns.len() > 1;
    let totals = copy_plan(&job, plan);
    Ok(job.outcome(totals))
}

/// Copies everything, one turn after the other.
fn copy_plan(job: &Job<'_>, mut plan: Plan) -> CopyTotals {
    let turns = std::mem::take(&mut plan.turns);
    let named: Vec<_> = turns.iter().flatten().map(|entry| entry.target().to_owned()).collect();
    let top = begin(job, plan);
    let mut totals = CopyTotals::default();
    for turn in turns {
        let is_single = matches!(turn.as_slice(), [one] if one.kind != FileType::Directory);
        let jobs = if is_single { 1 } else { job.jobs };
        for entry in turn.into_iter().rev() {
            top.hold(true);
            job.stack.push([Task::Entries(Arc::clone(&top), vec![entry])]);
        }
        work(job, jobs, &mut totals);
    }
    if (job.settings.recursive || job.settings.resume) && job.is_complete() {
        settle::sweep(&job.settings, &top, |name| named.iter().any(|each| each.as_c_str() == name));
    }
    if job.settings.sync && !job.settings.dry_run {
        job.sync(&top);
    }
    totals
}

/// Does what is on the stack with several threads, and tells progress meanwhile.
fn work(job: &Job<'_>, jobs: usize, totals: &mut CopyTotals) {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(|| Worker::run(job))).collect();
        while !job.stack.wait(PROGRESS_INTERVAL) {
            job.observer.progress(&job.progress.now());
        }
        for worker in workers {
            // A thread that has panicked has said so.
            totals.add(&worker.join().unwrap_or_default());
        }
    });
}

/// The folder that everything is put in, and what is known from the outset.
fn begin(job: &Job<'_>, plan: Plan) -> Arc<Folder> {
    let top = Arc::new(Folder {
        source: plan.source,
        system: system::name(&plan.target),
        heritage: metadata::heritage(std::os::fd::AsFd::as_fd(&plan.target)),
        target: plan.target,
        trail: Arc::new(plan.trail),
        parent: None,
        top: None,
        depth: 0,
        stat: None,
        state: folder::State::Existing,
        is_trusted: false,
        device: None,
        own: AtomicUsize::new(1),
        all: AtomicUsize::new(1),
    });
    if let Some(len) = plan.len {
        job.progress.expected.store(len, Ordering::Relaxed);
    }
    for failure in plan.problems {
        job.problem(failure);
    }
    top
}

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
