//! Copies the bytes of a file: small files through a buffer, large ones by the engine, and holes
//! not at all.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, fstat, ftruncate};
use underpass_engine::buffered::{self, BLOCK, is_small};
use underpass_engine::hint::Action;
use underpass_engine::{
    Error, Integrity, Kind, Mechanism, Options, Policy, Report, Sink, Source, Transfer, Version,
    data_ranges, mount_epoch,
};

use crate::error::{At, CopyError, Result};
use crate::files::dest_file::DestFile;
use crate::options::When;
use crate::tree::epoch_mark;
use crate::worker::CopyWorker;
use crate::worker::original::Original;
use crate::worker::verify::is_on_disk;
use crate::worker::verify::next_block;

impl<'a> CopyWorker<'a> {
    /// Copies all bytes.
    pub(crate) fn copy_bytes(
        &mut self,
        original: &Original<'_>,
        dest: &DestFile<'_>,
    ) -> Result<()> {
        let settings = &self.context.settings;
        let len = original.len();
        let allocated = u64::try_from(original.stat.st_blocks).unwrap_or(0) * 512;
        let has_holes = allocated < len;
        let done = self.resume_bytes(original, dest)?;
        let is_sparse = settings.sparse == When::Always && done == 0;
        if is_sparse {
            return self.copy_without_zeros(original, dest);
        }
        if is_small(&original.stat) && done == 0 && settings.allows_buffer() {
            return self.copy_small(original, dest);
        }
        if len >= MIN_READ_AHEAD_LEN {
            // Makes the kernel read further ahead. Some file systems do not support this advice.
            let _ = fadvise(&original.file, 0, None, Advice::Sequential);
        }
        let keeps_holes = settings.sparse == When::Auto && dest.is_empty() && has_holes;
        if keeps_holes || done > 0 && settings.sparse != When::Never {
            self.copy_data_ranges(original, dest, done)
        } else {
            self.copy_from(original, dest, done)
        }
    }

    /// Returns how many bytes of an interrupted run are kept, without those that may be
    /// incomplete.
    fn resume_bytes(&mut self, original: &Original<'_>, dest: &DestFile<'_>) -> Result<u64> {
        let DestFile::Unnamed { .. } = dest else { return Ok(0) };
        if !self.context.settings.resume || original.len() < crate::worker::file::MIN_PARTIAL_LEN {
            return Ok(0);
        }
        let path = || original.folder.target_path(original.entry.target());
        let stat = fstat(dest.file()).at("looking at", path)?;
        let here = u64::try_from(stat.st_size).unwrap_or(0).min(original.len());
        let epoch = self.context.boot.as_deref().map(|boot| mount_epoch::of(boot, dest.file()));
        let is_trusted = original.folder.is_trusted
            || epoch.as_ref().is_some_and(|epoch| epoch_mark::is_of(dest.file(), epoch));
        let here = match is_trusted {
            // The kernel drops bytes that it could not write back.
            _ if here > 0 && !is_on_disk(dest.file()) => 0,
            true => here.saturating_sub(RESUME_OVERLAP),
            // Not all of its bytes may have reached the disk.
            false if here > 0 => self.same_bytes(original, dest.file())?,
            false => 0,
        };
        let here = here / RESUME_OVERLAP * RESUME_OVERLAP;
        ftruncate(dest.file(), here).at(Action::Writing, path)?;
        if let Some(epoch) = epoch.filter(|_| !is_trusted) {
            epoch_mark::mark(dest.file(), &epoch);
        }
        self.totals.resumed_bytes += here;
        Ok(here)
    }

    /// Copies a small file by one read and one write.
    fn copy_small(&mut self, original: &Original<'_>, dest: &DestFile<'_>) -> Result<()> {
        let from = || original.folder.source_path(&original.entry.name);
        let to = || original.folder.target_path(original.entry.target());
        let promised = original.len() as usize;
        let mut report = Report::default();
        let read = buffered::read_whole(&original.file, promised, &mut self.buffer, &mut report);
        let Some(have) = read.at(Action::Reading, from)? else {
            self.count(original, &report);
            // Its size may be wrong: the engine handles that, from the first byte on.
            return self.copy_from(original, dest, 0);
        };
        let written = buffered::write_all(dest.file(), &self.buffer[..have], &mut report);
        self.count(original, &report);
        written.at(Action::Writing, to)?;
        self.context.progress.bytes.fetch_add(have as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Copies everything from an offset on by the engine.
    fn copy_from(&mut self, original: &Original<'_>, dest: &DestFile<'_>, at: u64) -> Result<()> {
        let from = || original.folder.source_path(&original.entry.name);
        // It may have changed since it was opened.
        let version = Version::from_stat(&original.stat);
        let source = Source::of(&original.file).at(Action::Reading, from)?.at(at).version(version);
        self.transfer_all(original, dest, source)
    }

    /// Copies the data between the holes, from offset `done` on.
    fn copy_data_ranges(
        &mut self,
        original: &Original<'_>,
        dest: &DestFile<'_>,
        done: u64,
    ) -> Result<()> {
        let from = || original.folder.source_path(&original.entry.name);
        let to = || original.folder.target_path(original.entry.target());
        let source = Source::of(&original.file).at(Action::Reading, from)?;
        if source.kind() != Kind::Regular || original.len() == 0 {
            return self.transfer_all(original, dest, source);
        }
        if done == 0 && self.is_cloned(original, dest)? {
            return Ok(());
        }
        let sink = Sink::of(dest.file()).at(Action::Writing, to)?;
        let version = Version::from_stat(&original.stat);
        let (mut copied, mut written) = (0, done);
        let mut first = None;
        let mut is_reserved = dest.is_new();
        for extent in data_ranges(original.file.as_fd(), done..original.len()) {
            let (at, len) = extent.at(Action::Reading, from)?;
            // Where space is reserved, the file system preallocates nothing.
            if !is_reserved && written > 0 {
                leave_hole(dest, written, at - written);
            }
            written = at + len;
            is_reserved = dest.is_new() && len > MAX_UNRESERVED;
            let source = source.clone().at(at).len(len).version(version);
            // The first transfer has checked that the file is at rest.
            let is_at_rest = copied > 0 && self.context.settings.integrity == Integrity::Detect;
            let source = if is_at_rest { source.stable() } else { source };
            let options = self.transfer_options(first);
            let options = if is_reserved { options.reserve() } else { options };
            self.transfer(original, source, sink.clone().at(at), options)?;
            copied += len;
            // The mechanism of the first part is used for all others.
            first = first.or_else(|| self.last_mechanism(original));
        }
        if !is_reserved && written < original.len() {
            leave_hole(dest, written, original.len() - written);
        }
        ftruncate(dest.file(), original.len()).at(Action::Writing, to)?;
        self.totals.hole_bytes += (original.len() - done).saturating_sub(copied);
        Ok(())
    }

    /// Tries to clone a file with holes, which is one call for all of it.
    fn is_cloned(&mut self, original: &Original<'_>, dest: &DestFile<'_>) -> Result<bool> {
        let settings = &self.context.settings;
        let policy = settings.policy;
        if settings.reflink == When::Never || policy != Policy::Auto {
            return Ok(false);
        }
        let from = || original.folder.source_path(&original.entry.name);
        let to = || original.folder.target_path(original.entry.target());
        let source = Source::of(&original.file).at(Action::Reading, from)?;
        let sink = Sink::of(dest.file()).at(Action::Writing, to)?;
        let options = settings.plain_engine_options();
        let options = options.policy(Policy::Require(Mechanism::Reflink)).unmetered();
        match Transfer::new(source, sink).options(options).run() {
            Ok(report) => {
                self.count(original, &report);
                Ok(true)
            }
            Err(error) => {
                // If the integrity guard gets no clone, neither does the copy.
                let is_declined =
                    matches!(error, Error::Declined { .. } | Error::IntegrityDeclined { .. });
                self.count(original, error.report());
                if is_declined && settings.reflink != When::Always {
                    return Ok(false);
                }
                Err(self.failed(original, error))
            }
        }
    }

    /// Returns the options of a transfer, which prefers the mechanism `first`.
    fn transfer_options(&self, first: Option<Mechanism>) -> Options<'a> {
        let context = self.context;
        let settings = &context.settings;
        let mut reported = 0;
        let progress = &context.progress.bytes;
        let options = settings
            .engine_options()
            .cancel(context.cancel)
            .capabilities(&context.capabilities)
            .unmetered()
            .observer(move |now| {
                progress.fetch_add(now.bytes - reported, Ordering::Relaxed);
                reported = now.bytes;
            });
        let is_free = settings.policy == Policy::Auto && settings.reflink != When::Always;
        match first.filter(|_| is_free) {
            Some(mechanism) => options.policy(Policy::Prefer(mechanism)),
            None => options,
        }
    }

    /// Runs a transfer of the engine to the end of its source.
    fn transfer_all(
        &mut self,
        original: &Original<'_>,
        dest: &DestFile<'_>,
        source: Source<&File>,
    ) -> Result<()> {
        let to = || original.folder.target_path(original.entry.target());
        let at = source.offset().unwrap_or(0);
        let sink = Sink::of(dest.file()).at(Action::Writing, to)?.at(at);
        let options = self.transfer_options(None);
        let options = if dest.is_new() { options.reserve() } else { options };
        self.transfer(original, source, sink, options)
    }

    /// Runs one transfer of the engine.
    fn transfer(
        &mut self,
        original: &Original<'_>,
        source: Source<&File>,
        sink: Sink<&File>,
        options: Options<'_>,
    ) -> Result<()> {
        let at = source.offset().unwrap_or(0);
        match Transfer::new(source, sink).options(options).run() {
            Ok(report) => {
                self.count(original, &report);
                Ok(())
            }
            Err(error) => {
                self.count(original, error.report());
                Err(self.failed_at(original, at, error))
            }
        }
    }

    /// Adds a report of the engine to the totals.
    pub(crate) fn count(&mut self, original: &Original<'_>, report: &Report) {
        self.totals.between(original.system, original.folder.system).report.add(report);
    }

    /// Returns a mechanism that has moved bytes between these two file systems, for the next
    /// transfer.
    fn last_mechanism(&mut self, original: &Original<'_>) -> Option<Mechanism> {
        let between = self.totals.between(original.system, original.folder.system);
        between
            .report
            .mechanisms()
            .map(|(mechanism, _)| mechanism)
            .find(|&mechanism| matches!(mechanism, Mechanism::CopyFileRange | Mechanism::Sendfile))
    }

    pub(crate) fn failed(&self, original: &Original<'_>, error: Error) -> CopyError {
        let (folder, entry) = (original.folder, original.entry);
        let (from, to) = (folder.source_path(&entry.name), folder.target_path(entry.target()));
        CopyError::Transfer { from, to, source: error }
    }

    /// Returns the failure of work on a file that is done up to `at`.
    pub(crate) fn failed_at(
        &self,
        original: &Original<'_>,
        at: u64,
        mut error: Error,
    ) -> CopyError {
        error.report_mut().count_earlier(at);
        if let Error::SourceEnded { expected, .. } = &mut error {
            *expected = original.len().max(at + *expected);
        }
        self.failed(original, error)
    }

    /// Reads everything but holes, and writes only bytes that are not zero, which makes holes that
    /// the original does not have.
    fn copy_without_zeros(&mut self, original: &Original<'_>, dest: &DestFile<'_>) -> Result<()> {
        let mut report = Report::default();
        let level = self.context.settings.integrity;
        let is_weaker = original.is_file() && level > Integrity::Detect;
        if is_weaker {
            report.weaken(level);
        }
        let copied = self.write_without_zeros(original, dest, &mut report);
        self.count(original, &report);
        let copied = copied.map(|zeros| self.totals.hole_bytes += zeros);
        if is_weaker { self.compare_versions(original, copied) } else { copied }
    }

    /// Writes all but the zeros; returns the number of bytes in holes.
    fn write_without_zeros(
        &mut self,
        original: &Original<'_>,
        dest: &DestFile<'_>,
        report: &mut Report,
    ) -> Result<u64> {
        let from = || original.folder.source_path(&original.entry.name);
        let to = || original.folder.target_path(original.entry.target());
        let (mut at, mut zeros) = (0, 0);
        loop {
            if self.context.is_over() {
                let report = Box::new(Report::default());
                return Err(self.failed_at(original, at, Error::Cancelled { report }));
            }
            let data = next_block(&original.file, at);
            if let Some(hole) = data.checked_sub(at).filter(|&hole| hole > 0) {
                if zeros < at {
                    leave_hole(dest, at, hole);
                }
                zeros += hole;
                self.context.progress.bytes.fetch_add(hole, Ordering::Relaxed);
                at = data;
            }
            let read = buffered::read_at(&original.file, &mut self.buffer, at, report);
            let have = read.at(Action::Reading, from)?;
            if have == 0 {
                break;
            }
            let mut offset = 0;
            while offset < have {
                let (len, is_zero) = run(&self.buffer[offset..have]);
                let part = &self.buffer[offset..offset + len];
                let here = at + offset as u64;
                if is_zero {
                    // Before the first write nothing is allocated.
                    if zeros < here {
                        leave_hole(dest, here, len as u64);
                    }
                    zeros += len as u64;
                } else {
                    let written = buffered::write_at(dest.file(), part, here, report);
                    written.at(Action::Writing, to)?;
                }
                offset += len;
            }
            at += have as u64;
            self.context.progress.bytes.fetch_add(have as u64, Ordering::Relaxed);
        }
        if at < original.len() && Source::of(&original.file).is_ok_and(|it| it.promised().is_some())
        {
            let (expected, report) = (original.len() - at, Box::new(Report::default()));
            return Err(self.failed_at(original, at, Error::SourceEnded { expected, report }));
        }
        ftruncate(dest.file(), at).at(Action::Writing, to)?;
        Ok(zeros)
    }
}

/// Frees the space that the file system has preallocated beyond the last write, as XFS does: it
/// would stay allocated after the next write.
fn leave_hole(dest: &DestFile<'_>, at: u64, len: u64) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // Space that stays allocated reads as zeros.
    let _ = fallocate(dest.file(), flags, at, len);
}

/// Returns the length in bytes of the first run of blocks, all zeros or all data, and whether they
/// are zeros.
fn run(bytes: &[u8]) -> (usize, bool) {
    let is_zero = |block: &[u8]| block.iter().all(|&byte| byte == 0);
    let mut blocks = bytes.chunks(BLOCK as usize);
    let Some(first) = blocks.next() else { return (0, false) };
    let wanted = is_zero(first);
    let same = blocks.take_while(|block| is_zero(block) == wanted);
    (first.len() + same.map(<[u8]>::len).sum::<usize>(), wanted)
}

/// The largest range of data between holes, in bytes, whose space is not reserved: that would
/// take longer than to remove what the file system preallocates.
const MAX_UNRESERVED: u64 = 16 << 10;

/// The minimum size for which the kernel's readahead matters.
const MIN_READ_AHEAD_LEN: u64 = 1 << 20;

/// The number of bytes at the end of a part that are copied again.
const RESUME_OVERLAP: u64 = 1 << 20;
