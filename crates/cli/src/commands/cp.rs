//! `underpass cp`: one file, within this machine.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use rustix::fs::{Mode, Timespec, Timestamps, fchmod, fstat, ftruncate, futimens};
use underpass_engine::{Error, Report, Source, Transfer, Version};

use crate::args::MoveArgs;
use crate::ends::{Input, Overwrite, Target, is_sparse};
use crate::failure::{Failure, Result, WithPath};
use crate::holes::extents;
use crate::output;
use crate::progress::Meter;
use crate::receipt::Receipt;
use crate::signals;

/// What can be typed after `cp`.
#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// The file to copy; - for standard input
    from: PathBuf,

    /// The new file, or the folder to put it in; - for standard output
    to: PathBuf,

    /// Replace a file even if it is not writable
    #[arg(short, long)]
    force: bool,

    /// Replace nothing: an existing file is an error
    #[arg(short, long, conflicts_with = "force")]
    no_clobber: bool,

    #[command(flatten)]
    movement: MoveArgs,
}

/// Copies.
pub(crate) fn run(args: &CpArgs) -> Result<()> {
    let show = args.movement.show;
    let input = Input::open(&args.from)?;
    let source = input.source()?;
    let path = destination(args)?;
    refuse_itself(&input, &path)?;
    let overwrite = match (args.force, args.no_clobber) {
        (true, _) => Overwrite::Always,
        (_, true) => Overwrite::Never,
        _ => Overwrite::IfWritable,
    };
    let target = Target::create(&path, overwrite)?;
    if path == Path::new("-") && show.json {
        let message = "--json prints on standard output, where the bytes go: name a file";
        return Err(Failure::Usage(message.to_owned()));
    }
    let meter = Meter::new(show);
    let started = Instant::now();
    let outcome = copy(args, &input, &source, &target, &meter);
    meter.clear();
    let report = outcome?;
    let elapsed_s = started.elapsed().as_secs_f64();
    if target.is_new() {
        keep_mode_and_times(input.file(), target.file()).with_path("keeping mode of", &path)?;
    }
    target.finish(report.bytes())?;
    input.finish(report.bytes());
    output::finished(show, &Receipt { elapsed_s, ..Receipt::from(&report) });
    Ok(())
}

/// Moves all bytes; of a file with holes only what is between them.
fn copy(
    args: &CpArgs,
    input: &Input,
    source: &Source<&File>,
    target: &Target,
    meter: &Meter,
) -> Result<Report> {
    let cancel = signals::cancel_flag();
    let what = format!("copying {} to {}", input.path().display(), target.path().display());
    let transfer = |source: Source<_>, sink| {
        let options = meter.watch(args.movement.options()).cancel(&cancel);
        let options = if target.is_new() { options.reserve() } else { options };
        Transfer::new(source, sink).options(options).run()
    };
    let failed = |error: Error| Failure::transfer(what.clone(), error, args.movement.show);
    if !target.is_new() || !is_sparse(input, source) {
        return transfer(source.clone(), target.sink()?).map_err(failed);
    }
    let version = Version::of(input.file()).with_path("reading", input.path())?;
    let len = source.promised().unwrap_or(0);
    let mut report = Report::default();
    for extent in extents(input.file().as_fd(), len) {
        let (from, len) = extent.with_path("reading", input.path())?;
        let source = source.clone().at(from).len(len).version(version);
        report.add(&transfer(source, target.sink()?.at(from)).map_err(failed)?);
    }
    ftruncate(target.file(), len).with_path("writing", target.path())?;
    Ok(report)
}

/// The file to write: the one named, or one of the source's name in the folder named.
fn destination(args: &CpArgs) -> Result<PathBuf> {
    if args.to == Path::new("-") || !args.to.is_dir() {
        return Ok(args.to.clone());
    }
    match args.from.file_name() {
        Some(name) if args.from != Path::new("-") => Ok(args.to.join(name)),
        _ => Err(Failure::Usage(format!("{} is a folder: name a file in it", args.to.display()))),
    }
}

fn refuse_itself(input: &Input, path: &Path) -> Result<()> {
    let (Ok(from), Ok(to)) = (input.file().metadata(), fs::metadata(path)) else { return Ok(()) };
    if from.is_file() && (from.dev(), from.ino()) == (to.dev(), to.ino()) {
        let from = input.path().display();
        let message = format!("{from} and {} are the same file", path.display());
        return Err(Failure::Usage(message));
    }
    Ok(())
}

/// Gives the copy the permissions and times of the original. Its owner is the one who copies, so
/// set-user-id and set-group-id are not kept.
fn keep_mode_and_times(from: &File, to: &File) -> rustix::io::Result<()> {
    let stat = fstat(from)?;
    fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o1777))?;
    let time = |tv_sec, nanoseconds: u64| Timespec { tv_sec, tv_nsec: nanoseconds.cast_signed() };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    futimens(to, &times)
}
