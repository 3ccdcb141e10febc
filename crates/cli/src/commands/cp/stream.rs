//! One stream of bytes: from standard input, or to standard output, a device or a FIFO.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::io::Errno;
use underpass_copy::ends::{Input, OutputTarget, check_ends, copy_stream, is_dash, is_same_end};
use underpass_copy::{CopyOptions, ExistingFiles};
use underpass_engine::hint::{Action, PathError};

use super::args::CpArgs;
use super::observer::{made, may_replace as ask, would_copy};
use super::print::{self, NotMoved};
use super::usage::{CpError, StreamError};
use crate::args::When;
use crate::failure::{Failure, Result, WithPath};
use crate::output::{self, ProgressMeter};
use crate::signals::{self, opener};
use underpass_receipt::{CopyReceipt, Receipt};

/// Copies the stream.
pub(super) fn run(args: &CpArgs, options: &CopyOptions, from: &Path, path: &Path) -> Result<()> {
    let show = args.movement.show;
    refuse_words(args, options, path)?;
    let not_begun = |failed| print::not_begun(failed, show, 0.0);
    // If the target is kept, the source is not opened: it may be a FIFO without a writer.
    if is_kept(options, from, path).map_err(not_begun)? {
        print::not_moved(show, NotMoved::Kept);
        return Ok(());
    }
    if is_same_end(from, path) {
        return Err(CpError::same_end(from, path).into());
    }
    if args.dry_run {
        check_ends(from, path).map_err(Failure::from).map_err(not_begun)?;
        would_copy(show, from, path);
        print::not_moved(show, NotMoved::DryRun);
        return Ok(());
    }
    if is_dash(path) && show.json {
        return Err(StreamError::OutputTwice.into());
    }
    let cancel = signals::cancel_flag();
    let input = Input::open(from, &opener(cancel)).map_err(Failure::from).map_err(not_begun)?;
    let source = input.source()?;
    if !may_replace(args, &input, path, cancel)? {
        print::not_moved(show, NotMoved::Kept);
        return Ok(());
    }
    let target = OutputTarget::of_copy(path, options, &opener(cancel));
    let (target, is_in_place) = target.map_err(Failure::from).map_err(not_begun)?;
    if is_in_place {
        output::note(&print::in_place(path, 1));
    }
    let mut target = if args.sync { target.durable() } else { target };
    let named = if input.has_name() { input.path() } else { target.path() };
    let meter = ProgressMeter::new(show, &output::short_path(named));
    let started = Instant::now();
    let engine_options = || meter.watch(options.engine_options()).cancel(cancel);
    let outcome = copy_stream((&input, &source), &target, options, engine_options);
    meter.clear();
    let ends = (source.kind().into(), target.sink()?.kind().into());
    let report =
        outcome.map_err(|error| print::stream_failure(Failure::copy(error, show), show, ends))?;
    let elapsed_s = started.elapsed().as_secs_f64();
    let receipt = Receipt { elapsed_s, ..Receipt::from(&report).between(ends.0, ends.1) };
    let not_ended = |failed: PathError| print::not_ended(failed.into(), show, receipt.clone());
    if target.look_again().map_err(not_ended)? && !may_replace(args, &input, path, cancel)? {
        print::not_moved(show, NotMoved::Kept);
        return Ok(());
    }
    let moved = (&source, &report);
    let finished = target.finish_copy(&input, moved, path, options.preserve, args.sync);
    finished.map_err(not_ended)?;
    if args.verbose && !is_dash(path) {
        made(input.path(), path, None);
    }
    print::copied(show, &CopyReceipt::of_stream(receipt));
    Ok(())
}

/// Returns whether the options keep what exists.
fn is_kept(options: &CopyOptions, from: &Path, path: &Path) -> Result<bool> {
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    let has_source = is_dash(from) || is_there(from);
    let exists = has_source && !is_dash(path) && is_there(path);
    match options.existing {
        ExistingFiles::Refuse if exists => Err(Errno::EXIST).with_path(Action::Writing, path)?,
        existing => Ok(exists && existing == ExistingFiles::Keep),
    }
}

/// Returns whether what exists may be replaced or written to, asking the user if necessary.
fn may_replace(args: &CpArgs, input: &Input, path: &Path, cancel: &AtomicBool) -> Result<bool> {
    let is_there = || !is_dash(path) && fs::metadata(path).is_ok();
    if !args.ordered.interactive || !is_there() {
        return Ok(true);
    }
    if !input.has_name() {
        return Err(StreamError::AnswersFromSource.into());
    }
    Ok(ask(path, cancel).with_path("asking about", path)?)
}

/// Refuses options that are impossible if the source can be read only once, or the target cannot be
/// read. Options about trees and metadata have no effect here, and may come from an alias.
fn refuse_words(args: &CpArgs, options: &CopyOptions, path: &Path) -> Result<()> {
    let is_file = !is_dash(path) && !fs::metadata(path).is_ok_and(|found| !found.is_file());
    refuse_rereading(args)?;
    refuse_any([
        (args.attributes_only, "--attributes-only"),
        (options.backup.is_some(), "--backup"),
        (options.link.is_some(), "-l or -s"),
        (args.in_place && is_file, "--in-place"),
    ])
}

/// Refuses options that need bytes to be read more than once.
pub(super) fn refuse_rereading(args: &CpArgs) -> Result<()> {
    refuse_any([
        (args.verify.is_some(), "--verify"),
        (args.resume, "--resume"),
        (args.ordered.update, "--update"),
        (args.sparse == When::Always, "--sparse"),
        (args.reflink == When::Always, "--reflink=always"),
    ])
}

fn refuse_any<const N: usize>(options: [(bool, &'static str); N]) -> Result<()> {
    match options.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(StreamError::NeedsFiles(option).into()),
        None => Ok(()),
    }
}
