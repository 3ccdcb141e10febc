//! Copies one file.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::{FileType, fstat, fsync};
use rustix::io::Errno;
use underpass_engine::atomic_file::{Existing, KeptOwner, take_over_named};
use underpass_engine::hint::Action;
use underpass_engine::{FileId, Kind, is_file, is_folder};

use crate::attributes::{self, FileModes};
use crate::context::SYNCING;
use crate::error::{At, CopyError, CopyRefusal, Result};
use crate::files::dest_file::DestFile;
use crate::files::file_system::FUSE;
use crate::tree::dir_pair::DirPair;
use crate::tree::entry::SourceEntry;
use crate::tree::{epoch_mark, hidden_names};
use crate::worker::CopyWorker;
use crate::worker::original::Original;
use crate::worker::retry::is_change;
use crate::worker::verdict::{EntryVerdict, of_twin};

impl CopyWorker<'_> {
    /// Copies a file, or links it if it has another name that was copied.
    pub(crate) fn file(&mut self, folder: &Arc<DirPair>, entry: &SourceEntry) -> Result<()> {
        self.copy_file(folder, entry, true)
    }

    /// Copies a file. With `may_link` a file of several names may be linked instead.
    pub(crate) fn copy_file(
        &mut self,
        folder: &Arc<DirPair>,
        entry: &SourceEntry,
        may_link: bool,
    ) -> Result<()> {
        // Opening a FIFO waits for a writer, so the decision comes first.
        let decided = match entry.kind {
            FileType::Fifo => {
                let stat = self.stat(folder, entry)?;
                Some((FileId::of(&stat), self.verdict(folder, entry, &stat)?))
            }
            _ => None,
        };
        if matches!(decided, Some((_, EntryVerdict::Leave))) {
            return Ok(());
        }
        let mut original = match self.open(folder, entry) {
            // An unreadable original does not matter if the existing file stays.
            Err(_) if self.is_left_unread(folder, entry).unwrap_or(false) => return Ok(()),
            opened => opened?,
        };
        let stat = original.stat;
        if is_folder(&stat) {
            return Err(Errno::ISDIR).at(Action::Reading, || folder.source_path(&entry.name));
        }
        if self.context.settings.recursive && !original.is_file() {
            let from = folder.source_path(&entry.name);
            return Err(CopyError::Refused(CopyRefusal::NotAFile { from }));
        }
        let verdict = match decided {
            // No question is asked twice.
            Some((own, verdict))
                if self.context.settings.interactive && own == FileId::of(&stat) =>
            {
                verdict
            }
            _ => self.verdict(folder, entry, &stat)?,
        };
        if verdict == EntryVerdict::Leave || self.is_up_to_date(folder, entry, &stat, verdict)? {
            return Ok(());
        }
        if self.is_dry(folder, entry, verdict) {
            let between = self.totals.between(original.system, folder.system);
            between.files += u64::from(verdict != EntryVerdict::Resumed);
            match verdict {
                EntryVerdict::Resumed => self.totals.count_resumed(&stat),
                _ => self.totals.files += 1,
            }
            return Ok(());
        }
        // A linked file keeps its bytes.
        let may_link = may_link && !self.opens_existing(verdict);
        if may_link && self.is_linked(folder, entry, &stat, verdict)? {
            return Ok(());
        }
        let made = match verdict {
            EntryVerdict::Resumed => self.keep_or_repair(&mut original),
            _ => self.make_file(&mut original, verdict),
        };
        if may_link {
            self.release_links(folder, entry, &stat, made.is_ok());
        }
        self.count_file();
        made
    }

    /// Returns whether the existing file with the name of an entry stays by the options alone.
    fn is_left_unread(&mut self, folder: &DirPair, entry: &SourceEntry) -> Result<bool> {
        let stat = self.stat(folder, entry)?;
        Ok(!self.context.settings.interactive
            && self.verdict(folder, entry, &stat)? == EntryVerdict::Leave)
    }

    /// Copies bytes and attributes, and gives the copy its name.
    pub(crate) fn make_file_once(
        &mut self,
        original: &Original<'_>,
        verdict: EntryVerdict,
        in_place: bool,
    ) -> Result<()> {
        let (folder, entry, stat) = (original.folder, original.entry, &original.stat);
        let path = || folder.target_path(entry.target());
        let modes =
            FileModes::new(&self.context.settings, original.file.as_fd(), stat, folder.inherited);
        if !self.context.observer.has_room(original.len()) {
            return Err(Errno::NOSPC).at(Action::Creating, path);
        }
        let mut dest = self
            .dest_file(original, modes, verdict, in_place)
            .map_err(|failure| of_twin(folder, entry, failure, false))?;
        let settings = &self.context.settings;
        let modes = if dest.is_new() {
            modes
                .adjusted_to(settings, stat, dest.file().as_fd(), folder.as_fd(), folder.inherited)
                .at("looking at", path)?
        } else {
            modes
        };
        let modes = if verdict == EntryVerdict::Replace && dest.is_new() && !original.is_file() {
            self.take_over(original, &dest, modes).at("keeping mode of", path)?
        } else {
            modes
        };
        if !settings.attributes_only {
            if !settings.recursive {
                let kind = Kind::of(&original.file, &original.stat).at(Action::Reading, path)?;
                self.totals.count_source(kind);
            }
            let copied =
                self.copy_bytes(original, &dest).and_then(|()| self.verify(original, &dest));
            let copied = self.check_version(original, copied);
            if let Err(failure) = copied {
                self.give_up(dest, &failure);
                return Err(failure);
            }
        }
        let syncs = settings.sync && (folder.system == FUSE || is_mounted_on(folder, &dest));
        if settings.resume && original.len() >= MIN_PARTIAL_LEN {
            self.end_part(original, &mut dest, syncs)?;
        }
        let (from, to) = (original.file.as_fd(), dest.file().as_fd());
        let inherited = dest.is_new().then_some(folder.inherited);
        let totals = &mut self.totals;
        let missing = attributes::keep(settings, from, to, stat, modes, inherited, totals);
        if syncs {
            fsync(dest.file()).at(SYNCING, path)?;
        }
        let backup = self.name_once(folder, entry, verdict, || {
            dest.commit(folder, entry.target(), settings.backups.as_ref()).at(Action::Writing, path)
        })?;
        if verdict == EntryVerdict::Replace {
            self.name_removed(folder, entry);
        }
        if let Some(failure) = missing.failure(path) {
            self.context.record_problem(failure);
        }
        self.totals.files += 1;
        self.totals.between(original.system, original.folder.system).files += 1;
        self.name_made(folder, entry, backup.as_deref());
        Ok(())
    }

    /// Gives the new copy of a device or FIFO the permissions and owner that it keeps of the file
    /// that it replaces, unless that file is to be removed or backed up.
    fn take_over(
        &self,
        original: &Original<'_>,
        dest: &DestFile<'_>,
        modes: FileModes,
    ) -> Result<FileModes, Errno> {
        let settings = &self.context.settings;
        if settings.preserve.keeps_mode() || settings.removes_existing() {
            return Ok(modes);
        }
        let owner = if settings.preserve.ownership { KeptOwner::Own } else { KeptOwner::Old };
        let (folder, name) = (&original.folder.target, original.entry.target());
        if take_over_named(dest.file(), folder, name, owner)? {
            modes.taken_over(settings, dest.file().as_fd())
        } else {
            Ok(modes)
        }
    }

    /// Makes or opens the file that the bytes are written to.
    fn dest_file<'o>(
        &self,
        original: &Original<'o>,
        modes: FileModes,
        verdict: EntryVerdict,
        in_place: bool,
    ) -> Result<DestFile<'o>> {
        let (folder, name) = (original.folder, original.entry.target());
        let settings = &self.context.settings;
        let path = || folder.target_path(name);
        let mode = modes.initial;
        let existing = match verdict {
            EntryVerdict::Replace => Existing::Replace,
            _ => Existing::Keep,
        };
        if self.opens_existing(verdict) {
            return DestFile::existing(folder, name).at("opening", path);
        }
        // Bytes that were written into a device or FIFO would be gone, and a link is replaced.
        if in_place && existing == Existing::Replace && self.is_file_there(original) {
            match DestFile::in_place(folder, name, &original.file) {
                // It is gone, or can perhaps be replaced, as coreutils does.
                Err(Errno::NOENT) => {}
                Err(Errno::ACCESS | Errno::TXTBSY | Errno::PERM) if settings.force => {}
                opened => return opened.at("opening", path),
            }
        }
        if settings.resume && original.len() >= MIN_PARTIAL_LEN {
            let partial = hidden_names::partial_name(name, &original.stat);
            if self.context.hidden_names.take_hidden(folder, &partial) {
                return DestFile::partial(folder, name, &partial, mode, existing)
                    .at(Action::Creating, path);
            }
        }
        DestFile::new(folder, name, mode, existing, self.context.keeps_leftovers)
            .at(Action::Creating, path)
    }

    /// Returns whether an existing file gets only the attributes.
    fn opens_existing(&self, verdict: EntryVerdict) -> bool {
        let settings = &self.context.settings;
        settings.attributes_only && verdict == EntryVerdict::Replace && !settings.removes_existing()
    }

    /// Returns whether a file has the name of a copy.
    fn is_file_there(&self, original: &Original<'_>) -> bool {
        self.target_stat(original.folder, original.entry)
            .is_ok_and(|there| there.is_some_and(|it| is_file(&it)))
    }

    /// Ends a part that a later run could resume: it is complete, and about to get its name.
    fn end_part(
        &self,
        original: &Original<'_>,
        dest: &mut DestFile<'_>,
        syncs: bool,
    ) -> Result<()> {
        let path = || original.folder.target_path(original.entry.target());
        if syncs {
            // This takes long, and must come first: after a kill, a file that is no longer a part
            // would be copied from the start.
            fsync(dest.file()).at(SYNCING, path)?;
        }
        let mut unmarked = dest.end_partial();
        if !original.folder.is_trusted {
            unmarked = unmarked.and(epoch_mark::forget(dest.file()));
        }
        self.context.check_unmarked(unmarked, path);
        Ok(())
    }

    /// Removes a copy that is known to be wrong. With `--resume`, any other is kept for a later
    /// run.
    fn give_up(&self, dest: DestFile<'_>, failure: &CopyError) {
        if matches!(failure, CopyError::Differs { .. }) || is_change(failure) {
            dest.discard();
        }
    }
}

/// Returns whether a file that is written in place is on another file system than its folder.
fn is_mounted_on(folder: &DirPair, dest: &DestFile<'_>) -> bool {
    let device = |file: BorrowedFd<'_>| fstat(file).map(|stat| stat.st_dev);
    !dest.is_new() && device(dest.file().as_fd()) != device(folder.target.as_fd())
}

/// The minimum size in bytes of a file of which a part is kept.
pub(crate) const MIN_PARTIAL_LEN: u64 = 16 << 20;
