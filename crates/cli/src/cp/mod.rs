//! Copies files and trees within this machine.
//!
//! `paths` tells what goes where. Threads (`crew`, `worker`) walk the tree (`walk`) and copy what
//! they find: files (`file`, `again`, `content`, `small`, `place`), links, devices and the like
//! (`special`), with what belongs to them (`metadata`, `links`), unless source and target are one
//! (`same`) or somebody who is asked (`ask`) wants to keep the target. Everything is counted where it
//! is done (`totals`) and told at the end (`report`).
//!
//! What is not whole has a hidden name (`names`), is merged or removed in the end (`settle`), and is
//! marked for a resumed command (`marker`), which believes what was written in the same `session`.

mod again;
mod ask;
mod content;
mod crew;
mod file;
mod folder;
mod glob;
mod job;
mod later;
mod links;
mod marker;
mod metadata;
mod names;
mod paths;
mod place;
mod progress;
mod report;
mod same;
mod session;
mod settings;
mod settle;
pub(crate) mod small;
mod special;
mod stream;
pub(crate) mod system;
mod totals;
mod verify;
mod walk;
mod worker;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Instant;

use rustix::fs::{FileType, Mode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

use crate::commands::cp::CpArgs;
use crate::failure::{Failure, Result};
use crate::signals;

pub(crate) use report::CopyReceipt;

use crew::Task;
use folder::Folder;
use job::Job;
use paths::Plan;
use settings::Settings;
use totals::Totals;
use worker::Worker;

/// Copies what the arguments say.
pub(crate) fn run(args: &CpArgs) -> Result<()> {
    let settings = Settings::new(args)?;
    let plan = match paths::understand(args, &settings)? {
        paths::Way::Stream { from, to } => return stream::run(args, &settings, &from, &to),
        paths::Way::Files(plan) => plan,
    };
    // The permissions of a copy are those of its original.
    umask(Mode::empty());
    let descriptors = allow_many_files();
    let cancel = signals::cancel_flag();
    let mut job = Job::new(settings, cancel);
    (job.levels, job.settings.jobs) = later::levels(descriptors, job.settings.jobs);
    job.remembers = plan.turns.len() > 1;
    let started = Instant::now();
    let totals = copy(&job, plan);
    let elapsed_s = started.elapsed().as_secs_f64();
    report::tell(&job, &totals, elapsed_s)
}

/// Copies everything, one turn after the other.
fn copy(job: &Job<'_>, mut plan: Plan) -> Totals {
    let turns = std::mem::take(&mut plan.turns);
    let named: Vec<_> = turns.iter().flatten().map(|entry| entry.target().to_owned()).collect();
    let top = begin(job, plan);
    let mut totals = Totals::default();
    for turn in turns {
        let is_single = matches!(turn.as_slice(), [one] if one.kind != FileType::Directory);
        let jobs = if is_single { 1 } else { job.settings.jobs };
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
        report::sync(job, &top);
    }
    totals
}

/// Does what is on the stack with several threads, and shows progress meanwhile.
fn work(job: &Job<'_>, jobs: usize, totals: &mut Totals) {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(|| Worker::run(job))).collect();
        progress::show(job);
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
        job.progress.expected.store(len, std::sync::atomic::Ordering::Relaxed);
    }
    for failure in plan.problems {
        job.problem(failure);
    }
    top
}

/// A deep tree needs two descriptors for each of its levels. Returns how many there may be.
fn allow_many_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // What is not allowed is missed only by very deep trees, of which fewer levels are open then.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// That nothing was done because of what was typed.
fn usage<T>(message: String) -> Result<T> {
    Err(Failure::Usage(message))
}
