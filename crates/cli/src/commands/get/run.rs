//! Fetches URLs one after the other, or several at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use underpass_client::download::{Gauge, RateLimit, TakenNames};
use underpass_client::input::list::ListedFile;
use underpass_client::{ClientError, TlsSetup};
use underpass_copy::ends::is_dash;
use underpass_engine::Size;
use underpass_engine::hint::Action;
use underpass_engine::wait::{lock, unpoison};

use super::args::GetArgs;
use super::check::check;
use super::file::GetRun;
use super::list;
use super::sums::{ChecksumList, ChecksumSource};
use super::{print, progress, tree};
use crate::failure::{Failure, Result, WithPath};
use crate::output::{self, ProgressMeter};
use crate::signals;

/// Fetches every URL.
pub(crate) fn run(args: &GetArgs) -> Result<()> {
    let mut items: Vec<_> = args.urls.iter().cloned().map(ListedFile::new).collect();
    if let Some(path) = &args.input {
        if is_dash(path) && args.check.as_ref().is_some_and(ChecksumSource::is_standard_input) {
            return Err(Failure::value("--check -", "standard input is the list of URLs already"));
        }
        let listed =
            list::read(path).inspect_err(|failure| report_not_started(args, &items, failure))?;
        items.extend(listed);
        if items.is_empty() && !args.show.quiet {
            output::note(&format!("{} has no URLs: nothing was fetched", path.display()));
        }
    }
    check(args, &items)?;
    let report = |failure: &Failure| report_not_started(args, &items, failure);
    let tls = args.http.tls(args.engine.policy()).inspect_err(report)?;
    let sums = local_sums(args).inspect_err(report)?;
    // From here on a signal ends the work in order; while the list is read, it ends the process.
    let cancel = signals::cancel_flag();
    if args.recursive {
        tree::check(args, &items)?;
        let (failures, mut left) = (Failures::default(), items.len());
        for item in &items {
            if cancel.load(Ordering::Relaxed) {
                break;
            }
            failures.record(tree::fetch(args, &item.url, &tls, cancel));
            left -= 1;
        }
        return failures.finish(left);
    }
    let default = if args.input.is_some() { DEFAULT_PARALLEL } else { 1 };
    let sums = sums.map_or_else(|| remote_sums(args, &tls, cancel), |sums| Ok(Some(sums)));
    let parallel = args.parallel.map_or(default, |count| count as usize).min(items.len().max(1));
    let files = GetRun {
        args,
        tls: &tls,
        cancel,
        rate_limit: Arc::new(RateLimit::new(args.rate.map(|Size(bytes)| bytes))),
        sums: sums.inspect_err(report)?,
        has_several: items.len() > 1,
        parallel,
        taken: TakenNames::default(),
        folders: Mutex::default(),
    };
    files.name_all(&mut items)?;
    let outcome = fetch_all(&files, &items);
    lock(&files.folders).remove_empty();
    outcome
}

/// Prints the receipts of URLs of which none is fetched.
fn report_not_started(args: &GetArgs, items: &[ListedFile], failure: &Failure) {
    for ListedFile { url, .. } in items {
        if args.recursive {
            tree::report_not_started(args, url, failure);
        } else {
            print::no_transfer(args.show, url, failure);
        }
    }
    if items.is_empty() {
        output::print_no_transfer(args.show, failure);
    }
}

/// Reads the digests of --check in a file.
fn local_sums(args: &GetArgs) -> Result<Option<ChecksumList>> {
    match &args.check {
        Some(ChecksumSource::File(path)) => ChecksumList::read(path).map(Some),
        Some(ChecksumSource::Url(_)) | None => Ok(None),
    }
}

/// Fetches the digests of --check at a URL.
fn remote_sums(
    args: &GetArgs,
    tls: &TlsSetup,
    cancel: &AtomicBool,
) -> Result<Option<ChecksumList>> {
    let Some(ChecksumSource::Url(url)) = &args.check else { return Ok(None) };
    let remote = args.store.remote(&args.http, url, tls, cancel)?;
    let report = |error: &ClientError, after| {
        if !args.show.quiet {
            output::note_retry(error, after);
        }
    };
    ChecksumList::fetch(&remote.client, &remote.url, args.http.retries, report).map(Some)
}

/// Fetches files, several at once if so requested.
fn fetch_all(files: &GetRun<'_>, items: &[ListedFile]) -> Result<()> {
    let GetRun { args, cancel, parallel, .. } = *files;
    let failures = Failures::default();
    let gauges: Vec<_> = items.iter().map(|_| Gauge::default()).collect();
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while !cancel.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { break };
            failures.record(files.fetch(item, &gauges[index]));
            finished.fetch_add(1, Ordering::Relaxed);
        }
    };
    // The number of files that were not tried because a signal arrived.
    let left = || items.len().saturating_sub(finished.load(Ordering::Relaxed));
    if parallel == 1 {
        work();
        return failures.finish(left());
    }
    if let Some(dir) = &args.dir {
        let created = lock(&files.folders).create(dir).with_path(Action::Creating, dir);
        created
            .map_err(Failure::from)
            .inspect_err(|failure| report_not_started(args, items, failure))?;
    }
    let meter =
        ProgressMeter::new(args.show, &output::counted(items.len() as u64, "file", "files"));
    let position = || progress::files(&gauges, finished.load(Ordering::Relaxed) as u64);
    meter.during(position, || {
        thread::scope(|scope| {
            // If not all threads can be started, fewer run.
            let start = |_: &usize| thread::Builder::new().spawn_scoped(scope, work).is_ok();
            if (0..parallel).take_while(start).count() == 0 {
                work();
            }
        });
    });
    failures.finish(left())
}

/// The last failure. It is printed, and its exit code returned, at the end of every command; those
/// before it are printed as they come.
#[derive(Debug, Default)]
struct Failures(Mutex<Option<Failure>>);

impl Failures {
    fn record(&self, outcome: Result<()>) {
        if let Err(failure) = outcome {
            let mut last = lock(&self.0);
            if let Some(before) = last.replace(failure) {
                output::failure(&before);
            }
        }
    }

    /// Returns the last failure. A signal between two files leaves some that have not failed.
    fn finish(self, left: usize) -> Result<()> {
        match unpoison(self.0.into_inner()) {
            Some(failure) => Err(failure),
            None if left > 0 => {
                let left = output::counted(left as u64, "URL was", "URLs were");
                Err(Failure::line(format!("cancelled: {left} not fetched")))
            }
            None => Ok(()),
        }
    }
}

/// The default number of files of a list that are fetched at once.
const DEFAULT_PARALLEL: usize = 4;
