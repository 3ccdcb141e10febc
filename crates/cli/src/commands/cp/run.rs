//! Copies the sources of the arguments: trees and files with `underpass-copy`, and one stream of
//! bytes with the engine.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{FileType, Mode};
use rustix::process::umask;
use underpass_copy::ends::{is_dash, is_stdout, open_file_number};
use underpass_copy::{CopyOptions, CopyTarget, Follow};

use super::args::CpArgs;
use super::observer::CpObserver;
use super::usage::{CpError, StreamError};
use super::{print, stream};
use crate::failure::{Failure, Result};
use crate::open_files;
use crate::output::{ProgressMeter, short_path};
use crate::signals;

/// Copies what the arguments name.
pub(crate) fn run(args: &CpArgs) -> Result<()> {
    let mut options = args.options()?;
    args.context.check()?;
    let (sources, target) = args.sources_and_target()?;
    let sources = &*sources;
    if args.parents && !fs::metadata(target).is_ok_and(|found| found.is_dir()) {
        return Err(CpError::ParentsWithoutFolder.into());
    }
    if let [from] = sources
        && let Some(to) = stream_target(args, &options, from, target)?
    {
        return stream::run(args, &options, from, &to);
    }
    if sources.iter().any(|from| is_dash(from)) {
        return Err(StreamError::InputWithOthers.into());
    }
    if let Err(refused) = stream::refuse_rereading(args)
        && sources.iter().any(|from| comes_once(&options, from))
    {
        return Err(refused);
    }
    let target_path = target;
    let own_backup = own_backup(args, &mut options, sources, target);
    let target = match (&own_backup, &args.target_directory, args.no_target_directory) {
        (Some(own), ..) => CopyTarget::NewName(own),
        (None, Some(_), _) => CopyTarget::Folder(target),
        (None, None, true) => CopyTarget::NewName(target),
        (None, None, false) => CopyTarget::Either(target),
    };
    // The permissions of a copy are those of its original.
    options.umask = umask(Mode::empty()).as_raw_mode();
    // A deep tree needs two descriptors for each level. With a lower limit, fewer levels are open.
    options.max_open_files = open_files::raise_limit();
    let cancel = signals::cancel_flag();
    let show = args.movement.show;
    let named = match sources {
        [only] => only,
        _ => target_path,
    };
    let meter = ProgressMeter::new(show, &short_path(named));
    let observer = CpObserver { meter: &meter, show, cancel, lists: args.verbose };
    let started = Instant::now();
    let outcome = underpass_copy::copy(&options, sources, target, &observer, cancel);
    let elapsed_s = started.elapsed().as_secs_f64();
    meter.clear();
    let failed = |error| print::not_begun(Failure::copy(error, show), show, elapsed_s);
    let outcome = outcome.map_err(failed)?;
    print::outcome(args, &options, outcome, elapsed_s)
}

/// Returns the name of the backup that a forced copy of a file onto itself makes, as coreutils
/// does. The backup itself gets no backup.
fn own_backup(
    args: &CpArgs,
    options: &mut CopyOptions,
    sources: &[PathBuf],
    target: &Path,
) -> Option<PathBuf> {
    let is_own = options.force && args.target_directory.is_none() && sources == [target];
    let is_file = || fs::metadata(target).is_ok_and(|found| found.is_file());
    let backup = options.backup.take_if(|_| is_own && is_file())?;
    Some(backup.path_of(target))
}

fn kind(found: fs::Metadata) -> FileType {
    FileType::from_raw_mode(found.mode())
}

/// Returns whether the bytes of a source are copied, and can be read only once.
fn comes_once(options: &CopyOptions, from: &Path) -> bool {
    if options.recursive || options.link.is_some() || options.attributes_only {
        return false;
    }
    let found = match options.follow {
        Follow::Never => fs::symlink_metadata(from),
        _ => fs::metadata(from),
    };
    found.is_ok_and(|it| matches!(kind(it), FileType::Fifo | FileType::CharacterDevice))
}

/// Returns the target of a byte stream if it, or the source, is not a regular file.
fn stream_target(
    args: &CpArgs,
    options: &CopyOptions,
    from: &Path,
    target: &Path,
) -> Result<Option<PathBuf>> {
    let is_named = is_dash(from) || is_dash(target) || args.no_target_directory;
    let is_folder = || !is_named && fs::metadata(target).is_ok_and(|found| found.is_dir());
    let target = match args.target_directory.is_some() || is_folder() {
        true if args.parents => target.join(from.strip_prefix("/").unwrap_or(from)),
        true => target.join(from.file_name().unwrap_or_default()),
        false => target.to_owned(),
    };
    let target = if is_stdout(&target) { PathBuf::from("-") } else { target };
    let found = fs::metadata(&target).ok().map(kind);
    // A socket cannot be opened, only replaced.
    let is_opened =
        |kind| !matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Socket);
    let takes_bytes = open_file_number(&target).is_some() || found.is_some_and(is_opened);
    // A tree cannot be written to a device, and with -r special files stay special. A link that is
    // copied as one has no bytes.
    let has_bytes = match fs::symlink_metadata(from).map(kind) {
        Ok(FileType::RegularFile) => true,
        Ok(FileType::Symlink) if options.follow == Follow::Never => false,
        _ => !options.recursive,
    };
    let has_dash = is_dash(from) || is_dash(&target);
    // Otherwise the entry is backed up or removed, or the link fails.
    let stays = options.backup.is_none() && !options.remove_destination && options.link.is_none();
    let is_stream = has_dash || (takes_bytes && has_bytes && stays);
    if !is_stream {
        return Ok(None);
    }
    if options.recursive && has_dash {
        return Err(StreamError::TreeAsStream.into());
    }
    if is_dash(from) && found == Some(FileType::Directory) {
        return Err(StreamError::InputToFolder(target).into());
    }
    Ok(Some(target))
}
