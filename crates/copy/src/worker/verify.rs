//! Reads copies again and compares them with their originals, before they get their names.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{Advice, Mode, OFlags, fadvise, fdatasync, openat};
use rustix::io::Errno;
use underpass_engine::hint::Action;
use underpass_engine::{Error, Report, buffered, next_data};

use crate::attributes::resumed::{has_attributes, has_owner_and_mode};
use crate::attributes::{self, FileModes};
use crate::error::{At, CopyError, Result};
use crate::files::dest_file::DestFile;
use crate::options::Verify;
use crate::worker::CopyWorker;
use crate::worker::original::Original;
use crate::worker::verdict::EntryVerdict;

impl CopyWorker<'_> {
    /// Compares a copy with its original, if the options want that.
    pub(crate) fn verify(&mut self, original: &Original<'_>, dest: &DestFile<'_>) -> Result<()> {
        match self.context.settings.verify {
            Some(how) => self.compare(original, dest.file(), how),
            None => Ok(()),
        }
    }

    /// Leaves a copy of an earlier run. If that was not in this mount epoch, or if the options want
    /// it, the copy is compared with its original first, and made again if it differs.
    pub(crate) fn keep_or_repair(&mut self, original: &mut Original<'_>) -> Result<()> {
        let folder = original.folder;
        let is_trusted = folder.is_trusted;
        let how = self.context.settings.verify.or((!is_trusted).then_some(Verify::Cache));
        let checked = how.map_or(Ok(()), |how| self.check_resumed(original, how, is_trusted));
        match checked {
            Ok(()) => {
                self.totals.count_resumed(&original.stat);
                self.repair_attributes(original)
            }
            Err(failure) if self.context.is_over() => Err(failure),
            // A file that cannot be read does not count as a copy.
            Err(_) => match self.verdict_on_other(folder, original.entry, &original.stat)? {
                EntryVerdict::Leave => Ok(()),
                verdict => self.make_file(original, verdict),
            },
        }
    }

    /// Gives a copy of an earlier run the attributes that that run did not keep.
    fn repair_attributes(&mut self, original: &Original<'_>) -> Result<()> {
        let (folder, stat) = (original.folder, &original.stat);
        let settings = &self.context.settings;
        if self.leaves_existing(folder) {
            return Ok(());
        }
        let Some(there) = self.target_stat(folder, original.entry)? else { return Ok(()) };
        let has_mode = has_owner_and_mode(settings, stat, &there);
        if has_mode && !settings.preserve.keeps_attributes() {
            return Ok(());
        }
        let copy = open_copy(original)?;
        let (from, to) = (original.file.as_fd(), copy.as_fd());
        if has_mode && has_attributes(settings.preserve, from, to) {
            return Ok(());
        }
        let modes = FileModes::new(settings, from, stat, folder.inherited);
        let missing = attributes::keep(settings, from, to, stat, modes, None, &mut self.totals);
        if let Some(failure) = missing.failure(|| folder.target_path(original.entry.target())) {
            self.context.record_problem(failure);
        }
        Ok(())
    }

    /// Compares a copy of an earlier run with its original.
    fn check_resumed(
        &mut self,
        original: &Original<'_>,
        how: Verify,
        is_trusted: bool,
    ) -> Result<()> {
        let copy = open_copy(original)?;
        if !is_trusted && !is_on_disk(&copy) {
            let path = || original.folder.target_path(original.entry.target());
            return Err(Errno::IO).at(Action::Reading, path);
        }
        self.compare(original, &copy, how)
    }

    /// Returns how many bytes of a part equal those of its original; 0 if it cannot be resumed.
    pub(crate) fn same_bytes(&mut self, original: &Original<'_>, part: &File) -> Result<u64> {
        match self.compare(original, part, Verify::Cache) {
            Ok(()) => Ok(original.len()),
            Err(CopyError::Differs { at, .. }) => Ok(at),
            // A part that cannot be read cannot be continued.
            Err(CopyError::Path { .. }) => Ok(0),
            Err(failure) => Err(failure),
        }
    }

    fn compare(&mut self, original: &Original<'_>, copy: &File, how: Verify) -> Result<()> {
        let mut report = Report::default();
        let compared = self.compare_bytes(original, copy, how, &mut report);
        self.count(original, &report);
        self.totals.verified_bytes += compared?;
        self.totals.verified += 1;
        Ok(())
    }

    /// Returns how many bytes were compared, if all are the same.
    fn compare_bytes(
        &mut self,
        original: &Original<'_>,
        copy: &File,
        how: Verify,
        report: &mut Report,
    ) -> Result<u64> {
        let from = || original.folder.source_path(&original.entry.name);
        let to = || original.folder.target_path(original.entry.target());
        let half = self.buffer.len() / 2;
        // O_DIRECT needs memory aligned to a block.
        let skip = self.buffer.as_ptr().align_offset(ALIGNMENT).min(half);
        let (in_copy, in_original) = self.buffer[skip..].split_at_mut(half);
        let len = in_copy.len().min(in_original.len()) / ALIGNMENT * ALIGNMENT;
        let direct = match how {
            Verify::Cache => None,
            Verify::Direct => past_the_cache(copy, &mut in_copy[..len]).at(Action::Reading, to)?,
        };
        let copy = direct.as_ref().unwrap_or(copy);
        let mut at = 0;
        loop {
            if self.context.is_over() {
                let report = Box::new(Report::default());
                return Err(self.failed_at(original, at, Error::Cancelled { report }));
            }
            // Holes in both are equal.
            at = at.max(next_block(&original.file, at).min(next_block(copy, at)));
            let copied = buffered::read_at(copy, &mut in_copy[..len], at, report);
            let copied = copied.at(Action::Reading, to)?;
            let wanted = buffered::read_at(&original.file, &mut in_original[..len], at, report);
            let wanted = wanted.at(Action::Reading, from)?;
            let pairs = in_copy[..copied].iter().zip(&in_original[..wanted]);
            let same = pairs.take_while(|(a, b)| a == b);
            let end = at + same.count() as u64;
            let compared = copied.min(wanted);
            let differs = || Err(CopyError::Differs { from: from(), to: to(), at: end });
            if end < at + compared as u64 {
                return differs();
            }
            if compared == len {
                at = end;
                continue;
            }
            // A short read means the end only at the end of the file.
            let copy_len = copy.metadata().at(Action::Reading, to)?.len();
            let original_len = original.file.metadata().at(Action::Reading, from)?.len();
            let is_end = end >= copy_len.max(original_len);
            if is_end && copied == wanted {
                at = end;
                break;
            }
            // O_DIRECT reads from the beginning of a block.
            let next = end / ALIGNMENT as u64 * ALIGNMENT as u64;
            if is_end || next <= at {
                return differs();
            }
            at = next;
        }
        Ok(at)
    }
}

/// Opens a copy of an earlier run.
fn open_copy(original: &Original<'_>) -> Result<File> {
    let (folder, name) = (original.folder, original.entry.target());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let copy = openat(&folder.target, name, flags, Mode::empty());
    Ok(copy.at("opening", || folder.target_path(name))?.into())
}

/// Returns the offset of the block with the next data of a file, from `at` on; that of its end if
/// there are none.
pub(super) fn next_block(file: &File, at: u64) -> u64 {
    let data = match next_data(file.as_fd(), at) {
        Ok(None) => file.metadata().map_or(at, |facts| facts.len()),
        // If the kernel does not report holes, everything has to be read.
        found => found.ok().flatten().unwrap_or(at),
    };
    data / ALIGNMENT as u64 * ALIGNMENT as u64
}

/// Opens the same file with O_DIRECT. If its file system does not support that, drops the page
/// cache of the file, so that it has to be read again, and returns `None`.
fn past_the_cache(copy: &File, buffer: &mut [u8]) -> std::io::Result<Option<File>> {
    drop_cached(copy)?;
    let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
    let flags = OFlags::DIRECT.bits() as i32;
    let direct = File::options().read(true).custom_flags(flags).open(path).ok();
    // Some file systems in user space open such a file, and refuse to read it.
    let first = buffer.len().min(ALIGNMENT);
    Ok(direct.filter(|direct| rustix::io::pread(direct, &mut buffer[..first], 0).is_ok()))
}

/// Returns whether everything written to a file is on the disk, and drops its page cache, so that
/// it is read from there: pages that could not be written back look as if they had been.
pub(crate) fn is_on_disk(file: &File) -> bool {
    // Some file systems cannot sync, and some kernels cannot drop pages.
    matches!(drop_cached(file), Ok(()) | Err(Errno::INVAL | Errno::NOSYS))
}

/// Writes a file back, and drops its pages from the page cache.
fn drop_cached(file: &File) -> std::result::Result<(), Errno> {
    fdatasync(file)?;
    fadvise(file, 0, None, Advice::DontNeed)
}

/// Alignment of addresses, offsets and lengths for O_DIRECT, in bytes.
const ALIGNMENT: usize = 4096;
