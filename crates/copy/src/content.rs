//! The bytes of a file: small ones through a buffer, large ones by the engine, holes not at all.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::fs::{Advice, fadvise, fstat, ftruncate};
use underpass_engine::{
    Error, Kind, Mechanism, Policy, Report, Sink, Source, Transfer, Version, data_ranges,
};

use crate::error::At;
use crate::error::CopyError;
use crate::file::Original;
use crate::options::When;
use crate::place::Place;
use crate::session;
use crate::worker::Worker;
use underpass_engine::buffered::{self, BLOCK, is_small};
use underpass_engine::hint::Action;

impl Worker<'_> {
    /// Copies all bytes.
    pub(crate) fn copy_bytes(
        &mut self,
        original: &Original<'_>,
        place: &Place<'_>,
    ) -> Result<(), CopyError> {
        let settings = &self.job.settings;
        let len = original.len();
        let allocated = u64::try_from(original.stat.st_blocks).unwrap_or(0) * 512;
        let has_holes = allocated < len;
        let done = self.here_already(original, place)?;
        if settings.sparse == When::Always && done == 0 {
            return self.copy_without_zeros(original, place);
        }
        if is_small(&original.stat) && done == 0 && settings.allows_buffer() {
            return self.copy_small(original, place);
        }
        if len >= LARGE {
            // Has the kernel read further ahead. It is advice, which some file systems do not take.
            let _ = fadvise(&original.file, 0, None, Advice::Sequential);
        }
        let keeps_holes = settings.sparse == When::Auto && place.is_empty() && has_holes;
        match keeps_holes || done > 0 {
            true => self.copy_data_ranges(original, place, done),
            false => self.copy_whole(original, place),
        }
    }

    /// How many bytes an interrupted run has left, less those that it may have been at.
    fn here_already(
        &mut self,
        original: &Original<'_>,
        place: &Place<'_>,
    ) -> Result<u64, CopyError> {
        let Place::AtomicFile { .. } = place else { return Ok(0) };
        if !self.job.settings.resume || original.len() < crate::file::PARTIAL {
            return Ok(0);
        }
        let path = || original.folder.target_path(original.entry.target());
        let stat = fstat(place.file()).at("looking at", path)?;
        let here = u64::try_from(stat.st_size).unwrap_or(0).min(original.len());
        let session = self.job.boot.as_deref().map(|boot| session::of(boot, place.file()));
        let is_trusted = original.folder.is_trusted
            || session.as_ref().is_some_and(|session| session::is_of(place.file(), session));
        let here = match is_trusted {
            true => here.saturating_sub(AGAIN),
            // The disk may not have got all of its bytes.
            false if here > 0 => self.same_bytes(original, place.file())?,
            false => 0,
        };
        let here = here / AGAIN * AGAIN;
        ftruncate(place.file(), here).at(Action::Writing, path)?;
        if let Some(session) = session.filter(|_| !is_trusted) {
            session::note(place.file(), &session);
        }
        self.totals.resumed_bytes += here;
        Ok(here)
    }

    /// One read, one write.
    fn copy_small(&mut self, original: &Original<'_>, place: &Place<'_>) -> Result<(), CopyError> {
        let from = || original.folder.source_path(&original.entry.name);
        let to = || original.folder.target_path(original.entry.target());
        let promised = original.len() as usize;
        let mut report = Report::default();
        let read = buffered::read_whole(&original.file, promised, &mut self.buffer, &mut report);
        let Some(have) = read.at(Action::Reading, from)? else {
            // Perhaps its size says nothing: the engine knows, and begins at the first byte.
            return self.copy_whole(original, place);
        };
        let whole = &self.buffer[..have];
        buffered::write_all(place.file(), whole, &mut report).at(Action::Writing, to)?;
        let between = self.totals.between(original.system, original.folder.system);
        between.report.add(&report);
        self.job.progress.bytes.fetch_add(have as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Everything by the engine.
    fn copy_whole(&mut self, original: &Original<'_>, place: &Place<'_>) -> Result<(), CopyError> {
        let from = || original.folder.source_path(&original.entry.name);
        let source = Source::of(&original.file).at(Action::Reading, from)?;
        let at = 0;
        self.transfer(original, place, source, at, None)
    }

    /// What is between the holes, from `done` on.
    fn copy_data_ranges(
        &mut self,
        original: &Original<'_>,
        place: &Place<'_>,
        done: u64,
    ) -> Result<(), CopyError> {
        let from = || original.folder.source_path(&original.entry.name);
        let to = || original.folder.target_path(original.entry.target());
        let source = Source::of(&original.file).at(Action::Reading, from)?;
        if source.kind() != Kind::Regular || original.len() == 0 {
            return self.transfer(original, place, source, 0, None);
        }
        if done == 0 && self.is_cloned(original, place)? {
            return Ok(());
        }
        let version = Version::from_stat(&original.stat);
        let mut copied = 0;
        let mut first = None;
        for extent in data_ranges(original.file.as_fd(), original.len()) {
            let (at, len) = extent.at(Action::Reading, from)?;
            let end = at + len;
            let at = at.max(done);
            if at >= end {
                continue;
            }
            let source = source.clone().at(at).len(end - at).version(version);
            self.transfer(original, place, source, at, first)?;
            copied += end - at;
            // What served the first part serves all others.
            first = first.or_else(|| self.last_mechanism(original));
        }
        ftruncate(place.file(), original.len()).at(Action::Writing, to)?;
        self.totals.hole_bytes += (original.len() - done).saturating_sub(copied);
        Ok(())
    }

    /// Tries one call for the whole of a file with holes: a clone has them all.
    fn is_cloned(&mut self, original: &Original<'_>, place: &Place<'_>) -> Result<bool, CopyError> {
        let settings = &self.job.settings;
        let policy = settings.policy;
        if settings.reflink == When::Never || policy != Policy::Auto {
            return Ok(false);
        }
        let from = || original.folder.source_path(&original.entry.name);
        let to = || original.folder.target_path(original.entry.target());
        let source = Source::of(&original.file).at(Action::Reading, from)?;
        let sink = Sink::of(place.file()).at(Action::Writing, to)?;
        let options = settings.plain_engine_options();
        let options = options.policy(Policy::Require(Mechanism::Reflink));
        match Transfer::new(source, sink).options(options).run() {
            Ok(report) => {
                self.count(original, &report);
                Ok(true)
            }
            Err(error) => {
                let is_declined = matches!(error, Error::Declined { .. });
                self.count(original, error.report());
                if is_declined && settings.reflink != When::Always {
                    return Ok(false);
                }
                Err(self.failed(original, error))
            }
        }
    }

    /// One transfer of the engine, to offset `at`.
    fn transfer(
        &mut self,
        original: &Original<'_>,
        place: &Place<'_>,
        source: Source<&std::fs::File>,
        at: u64,
        first: Option<Mechanism>,
    ) -> Result<(), CopyError> {
        let job = self.job;
        let settings = &job.settings;
        let to = || original.folder.target_path(original.entry.target());
        let mut told = 0;
        let progress = &job.progress.bytes;
        let options =
            settings.engine_options().cancel(job.cancel).capabilities(&job.capabilities).observer(
                move |now| {
                    progress.fetch_add(now.bytes - told, Ordering::Relaxed);
                    told = now.bytes;
                },
            );
        let is_free = settings.policy == Policy::Auto && settings.reflink != When::Always;
        let options = match first.filter(|_| is_free) {
            Some(mechanism) => options.policy(Policy::Prefer(mechanism)),
            None => options,
        };
        let options = if place.is_new() { options.reserve() } else { options };
        let sink = Sink::of(place.file()).at(Action::Writing, to)?.at(at);
        match Transfer::new(source, sink).options(options).run() {
            Ok(report) => {
                self.count(original, &report);
                Ok(())
            }
            Err(error) => {
                self.count(original, error.report());
                Err(self.failed(original, error))
            }
        }
    }

    /// Counts what the engine has done.
    fn count(&mut self, original: &Original<'_>, report: &Report) {
        self.totals.between(original.system, original.folder.system).report.add(report);
    }

    /// What moved bytes between these two file systems last, or rather: any that did.
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

    /// Reads everything, and writes what is not zero: for holes that the original does not have.
    fn copy_without_zeros(
        &mut self,
        original: &Original<'_>,
        place: &Place<'_>,
    ) -> Result<(), CopyError> {
        let from = || original.folder.source_path(&original.entry.name);
        let to = || original.folder.target_path(original.entry.target());
        let (mut report, mut at, mut zeros) = (Report::default(), 0, 0);
        loop {
            if self.job.is_over() {
                let report = Box::new(Report::default());
                return Err(self.failed(original, Error::Cancelled { report }));
            }
            let read = buffered::read_at(&original.file, &mut self.buffer, at, &mut report);
            let have = read.at(Action::Reading, from)?;
            if have == 0 {
                break;
            }
            let mut offset = 0;
            while offset < have {
                let (len, is_zero) = run(&self.buffer[offset..have]);
                let part = &self.buffer[offset..offset + len];
                if is_zero {
                    zeros += len as u64;
                } else {
                    let here = at + offset as u64;
                    let written = buffered::write_at(place.file(), part, here, &mut report);
                    written.at(Action::Writing, to)?;
                }
                offset += len;
            }
            at += have as u64;
            self.job.progress.bytes.fetch_add(have as u64, Ordering::Relaxed);
        }
        if at < original.len() && Source::of(&original.file).is_ok_and(|it| it.promised().is_some())
        {
            let (expected, report) = (original.len(), Box::new(Report::default()));
            return Err(self.failed(original, Error::SourceEnded { expected, report }));
        }
        ftruncate(place.file(), at).at(Action::Writing, to)?;
        self.totals.hole_bytes += zeros;
        let between = self.totals.between(original.system, original.folder.system);
        between.report.add(&report);
        Ok(())
    }
}

/// How many bytes at the beginning are all zero, or belong to blocks that are not.
fn run(bytes: &[u8]) -> (usize, bool) {
    let is_zero = |block: &[u8]| block.iter().all(|&byte| byte == 0);
    let mut blocks = bytes.chunks(BLOCK as usize);
    let Some(first) = blocks.next() else { return (0, false) };
    let wanted = is_zero(first);
    let same = blocks.take_while(|block| is_zero(block) == wanted);
    (first.len() + same.map(<[u8]>::len).sum::<usize>(), wanted)
}

/// From this size on it matters how far ahead is read.
const LARGE: u64 = 1 << 20;

/// So much of what an interrupted run has left is copied again.
const AGAIN: u64 = 1 << 20;
