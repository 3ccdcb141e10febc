//! Copies one stream of bytes: from standard input, or to standard output, a device or a FIFO.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, accessat, fchmod, fchown, fstat, fsync, ftruncate,
    futimens, stat,
};
use rustix::io::Errno;
use rustix::process::getegid;
use underpass_engine::atomic_file::{self, KeptOwner, set_mode, umask};
use underpass_engine::hint::{Action, PathError, WithPath};
use underpass_engine::{
    Error, FileId, Integrity, Options, Report, Source, Transfer, Version, data_ranges,
};

use super::{EndError, Input, Opener, OutputTarget, OverwriteRule, is_dash};
use crate::attributes::times;
use crate::error::{At, CopyError, is_refused};
use crate::options::preserve::{Preserve, PreserveMode};
use crate::options::{CopyOptions, ExistingFiles, When};

impl OutputTarget {
    /// Prepares the target of a copy with these options; a file that may be written to but not
    /// replaced is written in place, which is returned, too.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn of_copy(
        path: &Path,
        options: &CopyOptions,
        opener: Opener<'_>,
    ) -> Result<(Self, bool), EndError> {
        let overwrite = match (options.existing, options.force) {
            (ExistingFiles::Keep | ExistingFiles::Refuse, _) => OverwriteRule::Never,
            (_, true) => OverwriteRule::Always,
            _ => OverwriteRule::IfWritable,
        };
        match Self::create_with(path, overwrite, kept(options), opener) {
            Err(EndError::Path(PathError { action: Action::Creating, source, .. }))
                if is_refused(&source)
                    && !options.remove_destination
                    && fs::metadata(path).is_ok_and(|found| found.is_file()) =>
            {
                Ok((Self::in_place(path)?, true))
            }
            created => Ok((created?, false)),
        }
    }

    /// Completes the copy of `input` that [`copy_stream`] has made: gives it mode, times and name,
    /// and with `sync` waits for the disk.
    ///
    /// # Errors
    ///
    /// If it cannot get all of them; the copy stays if only mode or times are missing.
    pub fn finish_copy(
        self,
        input: &Input,
        (source, report): (&Source<&File>, &Report),
        path: &Path,
        preserve: Preserve,
        sync: bool,
    ) -> Result<(), PathError> {
        let kept =
            if self.is_new() { keep_mode_and_times(input, &self, preserve, path) } else { Ok(()) };
        if sync && !self.is_new() {
            sync_data(self.file()).with_path("writing to the disk of", path)?;
        }
        self.finish(report.bytes())?;
        // Holes are read, too, although none of their bytes is moved.
        input.finish(source.promised().unwrap_or_else(|| report.bytes()));
        // The copy stays even if its mode or times could not be kept.
        kept
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

/// Moves all bytes of `source`, which is that of `input`; of a file with holes only its data.
/// `options` returns the engine's options for each part.
///
/// # Errors
///
/// As [`Transfer::run`], and if the properties of the ends cannot be read.
pub fn copy_stream<'o>(
    (input, source): (&Input, &Source<&File>),
    target: &OutputTarget,
    copy: &CopyOptions,
    options: impl Fn() -> Options<'o>,
) -> Result<Report, CopyError> {
    let transfer = |source: Source<_>, sink| {
        let options = if target.is_new() { options().reserve() } else { options() };
        Transfer::new(source, sink).options(options).run()
    };
    let failed = |source: Error| CopyError::Transfer {
        from: input.path().to_owned(),
        to: target.path().to_owned(),
        source,
    };
    if !target.is_new() || copy.sparse == When::Never || !input.is_sparse(source) {
        return transfer(source.clone(), target.sink()?).map_err(failed);
    }
    let version = Version::of(input.file()).at(Action::Reading, || input.path())?;
    // Another process may have read some of standard input.
    let (begin, len) = (source.offset().unwrap_or(0), source.promised().unwrap_or(0));
    let mut report = Report::default();
    for extent in data_ranges(input.file().as_fd(), begin..begin + len) {
        let (from, len) = extent.at(Action::Reading, || input.path())?;
        let source = source.clone().at(from).len(len).version(version);
        // The first transfer has checked that the file is at rest.
        let is_at_rest = report.bytes() > 0 && copy.integrity == Integrity::Detect;
        let source = if is_at_rest { source.stable() } else { source };
        report.add(&transfer(source, target.sink()?.at(from - begin)).map_err(failed)?);
    }
    ftruncate(target.file(), len).at(Action::Writing, || target.path())?;
    Ok(report)
}

/// Fails if the source does not exist or may not be read, or the folder of a new target does not
/// exist: a dry run can check no more.
///
/// # Errors
///
/// Those of the failed check.
pub fn check_ends(from: &Path, path: &Path) -> Result<(), PathError> {
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

/// Waits for the disk; a target that is not on a disk needs no wait.
fn sync_data(file: &File) -> io::Result<()> {
    match fsync(file) {
        Err(Errno::INVAL | Errno::ROFS) => Ok(()),
        synced => Ok(synced?),
    }
}

/// Returns whether a source is also the target. A terminal may be both, if it was not named.
#[must_use]
pub fn is_same_end(from: &Path, to: &Path) -> bool {
    let here = if is_dash(from) { fstat(io::stdin()) } else { stat(from) };
    let there = if is_dash(to) { fstat(io::stdout()) } else { stat(to) };
    let (Ok(here), Ok(there)) = (here, there) else { return false };
    let kind = FileType::from_raw_mode(here.st_mode);
    let is_named = !is_dash(from) && !is_dash(to);
    let is_one_device = matches!(kind, FileType::BlockDevice | FileType::CharacterDevice)
        && kind == FileType::from_raw_mode(there.st_mode)
        && here.st_rdev == there.st_rdev;
    let is_one = is_one_device || FileId::of(&here) == FileId::of(&there);
    is_one && (is_named || matches!(kind, FileType::RegularFile | FileType::BlockDevice))
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
) -> Result<(), PathError> {
    let (from, to) = (input.file(), target.file());
    if target.keeps_old() && asks_for_owner(preserve) {
        // As with coreutils. A file system without groups may refuse.
        let _ = fchown(to, None, Some(getegid()));
    }
    let stat = fstat(from).with_path("looking at", input.path())?;
    let new = fstat(to).with_path("looking at", path)?.st_mode & 0o7777;
    let mode = atomic_file::without_acl(from.as_fd(), stat.st_mode);
    let mode = if preserve.keeps_mode() {
        mode & 0o1777
    } else if !target.keeps_old() && preserve.mode != PreserveMode::Nothing {
        // At most what the folder's default ACL allows a new file, except the right to execute.
        mode & 0o777 & !umask().unwrap_or(0o077) & (new | (new & 0o444) >> 2)
    } else {
        new
    };
    let moded = if preserve.keeps_mode() {
        // This removes an ACL of the replaced file or of the folder, too.
        set_mode(to, mode)
    } else if mode == new {
        Ok(())
    } else {
        fchmod(to, Mode::from_raw_mode(mode))
    };
    let is_timed = preserve.keeps_times_of_bytes(&stat);
    let timed = if is_timed { futimens(to, &times(&stat)) } else { Ok(()) };
    moded.with_path("keeping mode of", path)?;
    timed.with_path("keeping times of", path)
}
