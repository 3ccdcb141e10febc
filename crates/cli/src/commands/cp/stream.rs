//! One stream of bytes: from standard input, or into standard output, a device, a FIFO.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, accessat, fchmod, fchown, fstat, fsync, ftruncate,
    futimens, stat,
};
use rustix::io::Errno;
use rustix::process::getegid;
use underpass_copy::{CopyOptions, ExistingFiles, Preserve, PreserveMode, permissions, times};
use underpass_engine::atomic_file::{KeptOwner, set_mode};
use underpass_engine::hint::{Action, PathError};
use underpass_engine::{
    Error, FileId, Integrity, Report, Source, Transfer, Version, atomic_file, data_ranges,
};

use super::args::CpArgs;
use super::observer::{made, may_replace as ask, would_copy};
use super::print::{self, NotMoved};
use super::usage::CpError;
use crate::args::When;
use crate::ends::{Input, OutputTarget, OverwriteRule, is_dash, is_sparse};
use crate::failure::{Failure, Result, WithPath};
use crate::output;
use crate::output::ProgressMeter;
use crate::signals;
use underpass_receipt::{CopyReceipt, Receipt};

/// Prepares the target; a file that may be written to but not replaced is written in place.
fn create(
    path: &Path,
    overwrite: OverwriteRule,
    options: &CopyOptions,
    cancel: &AtomicBool,
) -> Result<OutputTarget> {
    match OutputTarget::create_with(path, overwrite, kept(options), cancel) {
        Err(Failure::Path(PathError { action: Action::Creating, source, .. }))
            if is_refused(&source)
                && !options.remove_destination
                && fs::metadata(path).is_ok_and(|found| found.is_file()) =>
        {
            let target = OutputTarget::in_place(path)?;
            output::note(&print::in_place(path, 1));
            Ok(target)
        }
        created => created,
    }
}

/// Returns what the copy keeps of a file that it replaces.
fn kept(options: &CopyOptions) -> Option<KeptOwner> {
    let owner = if asks_for_owner(options.preserve) { KeptOwner::Own } else { KeptOwner::Old };
    (!options.remove_destination).then_some(owner)
}

/// Returns whether the permissions or the owner of a replaced file are not to be kept.
fn asks_for_owner(preserve: Preserve) -> bool {
    preserve.ownership || preserve.keeps_mode()
}

/// Copies the stream.
pub(super) fn run(args: &CpArgs, options: &CopyOptions, from: &Path, path: &Path) -> Result<()> {
    let show = args.movement.show;
    refuse_words(args, options, path)?;
    refuse_itself(from, path)?;
    let not_begun = |failed| print::not_begun(failed, show, 0.0);
    // If the target is kept, no bytes are waited for: they may come from a FIFO without a writer.
    if is_kept(options, from, path).map_err(not_begun)? {
        print::not_moved(show, NotMoved::Kept);
        return Ok(());
    }
    if args.dry_run {
        look_at(from, path).map_err(not_begun)?;
        would_copy(show, from, path);
        print::not_moved(show, NotMoved::DryRun);
        return Ok(());
    }
    if is_dash(path) && show.json {
        return Err(CpError::OutputTwice.into());
    }
    let cancel = signals::cancel_flag();
    let input = Input::open(from, cancel).map_err(not_begun)?;
    let source = input.source()?;
    if !may_replace(args, &input, path, cancel)? {
        print::not_moved(show, NotMoved::Kept);
        return Ok(());
    }
    let overwrite = match (options.existing, args.force) {
        (ExistingFiles::Keep | ExistingFiles::Refuse, _) => OverwriteRule::Never,
        (_, true) => OverwriteRule::Always,
        _ => OverwriteRule::IfWritable,
    };
    let target = create(path, overwrite, options, cancel).map_err(not_begun)?;
    let mut target = if args.sync { target.durable() } else { target };
    let named = if input.has_name() { input.path() } else { target.path() };
    let meter = ProgressMeter::new(show, &output::short_path(named));
    let started = Instant::now();
    let outcome = copy(args, options, cancel, &input, &source, &target, &meter);
    meter.clear();
    let ends = (source.kind().into(), target.sink()?.kind().into());
    let report = outcome.map_err(|failed| print::stream_failure(failed, show, ends))?;
    let elapsed_s = started.elapsed().as_secs_f64();
    let receipt = Receipt { elapsed_s, ..Receipt::from(&report).between(ends.0, ends.1) };
    let not_ended = |failed| print::not_ended(failed, show, receipt.clone());
    if target.look_again().map_err(not_ended)? && !may_replace(args, &input, path, cancel)? {
        print::not_moved(show, NotMoved::Kept);
        return Ok(());
    }
    let kept = if target.is_new() {
        keep_mode_and_times(&input, &target, options.preserve, path)
    } else {
        Ok(())
    };
    if args.sync && !target.is_new() {
        let synced = sync(target.file()).with_path("writing to the disk of", path);
        synced.map_err(|error| not_ended(error.into()))?;
    }
    target.finish(report.bytes()).map_err(not_ended)?;
    // Holes are read, too, although none of their bytes is moved.
    input.finish(source.promised().unwrap_or_else(|| report.bytes()));
    // The copy stays.
    kept.map_err(not_ended)?;
    if args.verbose && !is_dash(path) {
        made(input.path(), path, None);
    }
    print::copied(show, &CopyReceipt::of_stream(receipt));
    Ok(())
}

/// Fails if the source does not exist or may not be read, or the folder of a new target does not
/// exist.
fn look_at(from: &Path, path: &Path) -> Result<()> {
    if !is_dash(from) {
        fs::metadata(from).with_path("opening", from)?;
        let may_read = accessat(CWD, from, Access::READ_OK, AtFlags::EACCESS);
        if may_read == Err(Errno::ACCESS) {
            may_read.with_path("opening", from)?;
        }
    }
    if !is_dash(path) && fs::metadata(path).is_err() {
        fs::metadata(atomic_file::folder_of(path)).with_path(Action::Creating, path)?;
    }
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
        return Err(CpError::AnswersFromSource.into());
    }
    Ok(ask(path, cancel).with_path("asking about", path)?)
}

/// Moves all bytes; of a file with holes only its data.
fn copy(
    args: &CpArgs,
    copy_options: &CopyOptions,
    cancel: &AtomicBool,
    input: &Input,
    source: &Source<&File>,
    target: &OutputTarget,
    meter: &ProgressMeter,
) -> Result<Report> {
    let what = format!("copying {} to {}", input.path().display(), target.path().display());
    let transfer = |source: Source<_>, sink| {
        let options = meter.watch(copy_options.engine_options()).cancel(cancel);
        let options = if target.is_new() { options.reserve() } else { options };
        Transfer::new(source, sink).options(options).run()
    };
    let failed = |error: Error| Failure::transfer(what.clone(), error, args.movement.show);
    if !target.is_new() || args.sparse == When::Never || !is_sparse(input, source) {
        return transfer(source.clone(), target.sink()?).map_err(failed);
    }
    let version = Version::of(input.file()).with_path(Action::Reading, input.path())?;
    // Others may have read from standard input before.
    let (begin, len) = (source.offset().unwrap_or(0), source.promised().unwrap_or(0));
    let mut report = Report::default();
    for extent in data_ranges(input.file().as_fd(), begin..begin + len) {
        let (from, len) = extent.with_path(Action::Reading, input.path())?;
        let source = source.clone().at(from).len(len).version(version);
        // The first transfer has found out whether the file is at rest.
        let is_at_rest = report.bytes() > 0 && copy_options.integrity == Integrity::Detect;
        let source = if is_at_rest { source.stable() } else { source };
        report.add(&transfer(source, target.sink()?.at(from - begin)).map_err(failed)?);
    }
    ftruncate(target.file(), len).with_path(Action::Writing, target.path())?;
    Ok(report)
}

/// Refuses options that are impossible for bytes that come only once, or go where they cannot be
/// read again. Options about trees and metadata have no effect here, and may come from an alias.
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
        Some((_, option)) => Err(CpError::NotForStreams(option).into()),
        None => Ok(()),
    }
}

/// Waits for the disk; a target without one has nothing to wait for.
fn sync(file: &File) -> io::Result<()> {
    match fsync(file) {
        Err(Errno::INVAL | Errno::ROFS) => Ok(()),
        synced => Ok(synced?),
    }
}

/// Refuses a source that is also the target. A terminal may be both, if it was not named.
fn refuse_itself(from: &Path, to: &Path) -> Result<()> {
    let here = if is_dash(from) { fstat(io::stdin()) } else { stat(from) };
    let there = if is_dash(to) { fstat(io::stdout()) } else { stat(to) };
    let (Ok(here), Ok(there)) = (here, there) else { return Ok(()) };
    let kind = FileType::from_raw_mode(here.st_mode);
    let is_named = !is_dash(from) && !is_dash(to);
    let is_one_device = matches!(kind, FileType::BlockDevice | FileType::CharacterDevice)
        && kind == FileType::from_raw_mode(there.st_mode)
        && here.st_rdev == there.st_rdev;
    let is_one = is_one_device || FileId::of(&here) == FileId::of(&there);
    if is_one && (is_named || matches!(kind, FileType::RegularFile | FileType::BlockDevice)) {
        let name = |path: &Path, standard: &str| {
            if is_dash(path) { standard.to_owned() } else { path.display().to_string() }
        };
        let (from, to) = (name(from, "standard input"), name(to, "standard output"));
        return Err(CpError::SameFile { from, to }.into());
    }
    Ok(())
}

/// Gives the copy the times of the original, and a mode: exactly that of the original if it is to
/// be kept, that of the file that it replaces, or else that of the original less the umask.
///
/// If mode or owner are to be kept, the copy belongs to the user who copies, and the group is that of
/// the user instead of that of a replaced file. As these need not be the owner and group of the
/// original, it does not get set-user-id and set-group-id.
fn keep_mode_and_times(
    input: &Input,
    target: &OutputTarget,
    preserve: Preserve,
    path: &Path,
) -> Result<()> {
    let (from, to) = (input.file(), target.file());
    if target.keeps_old() && asks_for_owner(preserve) {
        // As with coreutils. A file system without groups may refuse.
        let _ = fchown(to, None, Some(getegid()));
    }
    let stat = fstat(from).with_path("looking at", input.path())?;
    let new = fstat(to).with_path("looking at", path)?.st_mode & 0o7777;
    let mode = permissions::without_acl(from.as_fd(), stat.st_mode);
    let mode = if preserve.keeps_mode() {
        mode & 0o1777
    } else if !target.keeps_old() && preserve.mode != PreserveMode::Nothing {
        // At most what the folder's default ACL allows a new file, except the right to execute.
        mode & 0o777 & !atomic_file::umask().unwrap_or(0o077) & (new | (new & 0o444) >> 2)
    } else {
        new
    };
    let moded = if preserve.keeps_mode() {
        // An ACL of the replaced file or of the folder goes, too.
        set_mode(to, mode)
    } else if mode == new {
        Ok(())
    } else {
        fchmod(to, Mode::from_raw_mode(mode))
    };
    let is_timed = preserve.keeps_times_of_bytes(&stat);
    let timed = if is_timed { futimens(to, &times(&stat)) } else { Ok(()) };
    moded.with_path("keeping mode of", path)?;
    Ok(timed.with_path("keeping times of", path)?)
}

/// Returns whether the error means that a file could not be replaced, though it may be writable.
fn is_refused(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ACCESS | Errno::PERM | Errno::BUSY))
}
