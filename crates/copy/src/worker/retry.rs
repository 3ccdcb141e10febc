//! Copies files a second time: those that changed during the copy, and those that cannot be
//! replaced.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{SeekFrom, Stat, fstat, seek};
use rustix::io::Errno;
use underpass_engine::buffered::is_small;
use underpass_engine::hint::Action;
use underpass_engine::{
    Error, Integrity, Kind, Report, Source, Version, WriterCheck, Writers, await_writes, mtime,
};

use crate::error::{At, CopyError, Result, is_refused};
use crate::options::When;
use crate::worker::CopyWorker;
use crate::worker::original::Original;
use crate::worker::verdict::EntryVerdict;

impl CopyWorker<'_> {
    /// Copies a file, and once more if it changes during the copy.
    pub(crate) fn make_file(
        &mut self,
        original: &mut Original<'_>,
        verdict: EntryVerdict,
    ) -> Result<()> {
        let made = self.settle(original).and_then(|()| self.make_file_anyhow(original, verdict));
        match made {
            Err(failure) if is_change(&failure) && rewind(&original.file).is_ok() => {}
            made => return made,
        }
        self.await_truncation(original);
        self.look_again(original)?;
        self.settle(original)?;
        self.make_file_anyhow(original, verdict)?;
        self.totals.copied_again += 1;
        let path = || original.folder.source_path(&original.entry.name);
        self.context.copied_again.get_or_init(path);
        Ok(())
    }

    /// Waits, before a file is read without the engine, until every change of its bytes changes its
    /// times too, as the engine does. A small file without a recent change needs no wait.
    fn settle(&self, original: &mut Original<'_>) -> Result<()> {
        let settings = &self.context.settings;
        let is_small = is_small(&original.stat);
        let reads = settings.sparse == When::Always || is_small && settings.allows_buffer();
        if !reads
            || !original.is_file()
            || settings.integrity == Integrity::Fast
            || settings.attributes_only
        {
            return Ok(());
        }
        let before = Version::from_stat(&original.stat);
        let (folder, name) = (original.folder, &original.entry.name);
        let from = || folder.source_path(name);
        if original.len() == 0 || is_small && !WriterCheck::is_recent(&before) {
            return Ok(());
        }
        let kind = Kind::of(&original.file, &original.stat).at(Action::Reading, from)?;
        if kind == Kind::Regular {
            self.wait_for_writers(original, &before)?;
        }
        let version = Version::from_stat(&original.stat);
        await_writes(&original.file, &version).at(Action::Reading, from)
    }

    /// Waits until programs that have the file open for writing have stopped changing it.
    fn wait_for_writers(&self, original: &mut Original<'_>, before: &Version) -> Result<()> {
        let (folder, name) = (original.folder, &original.entry.name);
        let from = || folder.source_path(name);
        let mut check = WriterCheck::brief();
        loop {
            match check.check(&original.file, Some(*before)).at(Action::Reading, from)? {
                Writers::Wait(_) if self.context.is_over() => {
                    let report = Box::new(Report::default());
                    return Err(self.failed(original, Error::Cancelled { report }));
                }
                Writers::Wait(pause) => thread::sleep(pause.min(POLL_INTERVAL)),
                Writers::Busy => return Err(self.changed(original, 0)),
                Writers::Stable { version, .. } => {
                    if version.differs_from(before) {
                        self.look_again(original)?;
                    }
                    if version.differs_from(&Version::from_stat(&original.stat)) {
                        return Err(self.changed(original, 0));
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Waits for the end of a truncation, which changes the size first, and the times once the
    /// blocks are free: otherwise the file would change a second time.
    fn await_truncation(&self, original: &Original<'_>) {
        let (before, begun) = (&original.stat, Instant::now());
        let ctime = |stat: &Stat| (stat.st_ctime, stat.st_ctime_nsec);
        let is_half_way = |now: Stat| {
            let has_times = mtime(&now) == mtime(before) && ctime(&now) == ctime(before);
            now.st_size < before.st_size && has_times
        };
        while fstat(&original.file).is_ok_and(is_half_way)
            && begun.elapsed() < MAX_TRUNCATION
            && !self.context.is_over()
        {
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn look_again(&self, original: &mut Original<'_>) -> Result<()> {
        let path = || original.folder.source_path(&original.entry.name);
        original.stat = fstat(&original.file).at("looking at", path)?;
        Ok(())
    }

    /// Returns the error for an original of which no single version could be read, once this many
    /// bytes were copied.
    fn changed(&self, original: &Original<'_>, bytes: u64) -> CopyError {
        let (level, report) = (Integrity::Detect, Box::new(Report::default()));
        self.failed_at(original, bytes, Error::SourceChanged { level, report })
    }

    /// Copies a file. One that can be written to but not replaced is written in place: in a folder
    /// that is not writable, in one like /tmp if another user owns it, or where something is
    /// mounted on it.
    fn make_file_anyhow(&mut self, original: &Original<'_>, verdict: EntryVerdict) -> Result<()> {
        let in_place = self.context.settings.in_place;
        let made = self.make_file_once(original, verdict, in_place);
        let is_refused = match &made {
            // The bytes are read again from the beginning, unless they come only once.
            Err(CopyError::Path { action: Action::Writing, source, .. }) => {
                is_refused(source) && rewind(&original.file).is_ok()
            }
            Err(CopyError::Path { action: Action::Creating, source, .. }) => is_refused(source),
            _ => false,
        };
        // Other names of a file that is to be removed first, or backed up, keep its bytes.
        let may_write = !self.context.settings.removes_existing();
        if verdict != EntryVerdict::Replace || in_place || !is_refused || !may_write {
            return made;
        }
        self.make_file_once(original, verdict, true)?;
        self.totals.in_place += 1;
        self.context.in_place.get_or_init(|| original.folder.target_path(original.entry.target()));
        Ok(())
    }

    /// Checks that the original is the same as before its bytes were copied, with the outcome
    /// `copied`, if nothing else ensures that.
    pub(crate) fn check_version(&self, original: &Original<'_>, copied: Result<()>) -> Result<()> {
        match self.context.settings.integrity {
            Integrity::Detect => self.compare_versions(original, copied),
            _ => copied,
        }
    }

    /// Does what [`check_version`](Self::check_version) does, whatever the options say.
    pub(crate) fn compare_versions(
        &self,
        original: &Original<'_>,
        copied: Result<()>,
    ) -> Result<()> {
        let bytes = match &copied {
            Ok(()) | Err(CopyError::Differs { .. }) => original.len(),
            Err(CopyError::Transfer { source: source @ Error::SourceEnded { .. }, .. }) => {
                source.bytes()
            }
            // The original may not have changed.
            Err(_) => return copied,
        };
        let before = Version::from_stat(&original.stat);
        let is_same = Version::of(&original.file).is_ok_and(|now| !now.differs_from(&before));
        // Devices and files of procfs have no versions.
        if is_same || Source::of(&original.file).is_ok_and(|it| it.kind() != Kind::Regular) {
            return copied;
        }
        Err(self.changed(original, bytes))
    }
}

/// Returns whether a copy failed because its original changed.
pub(crate) fn is_change(failure: &CopyError) -> bool {
    matches!(failure, CopyError::Transfer { source: Error::SourceChanged { .. }, .. })
}

/// Sets the cursor of a file to its beginning.
fn rewind(file: &File) -> Result<(), Errno> {
    seek(file, SeekFrom::Start(0)).map(|_| ())
}

/// The maximum time to wait for the end of a truncation.
const MAX_TRUNCATION: Duration = Duration::from_secs(5);

/// The interval at which a wait for a writer checks whether the copy was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
