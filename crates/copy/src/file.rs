//! One file with bytes.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use underpass_engine::atomic_file::Existing;

use crate::again::is_change;
use crate::error::At;
use crate::error::CopyError;
use crate::folder::{Entry, Folder};
use crate::metadata::{self, Manner};
use crate::permissions;
use crate::place::Place;
use crate::special::Verdict;
use crate::worker::Worker;
use crate::{names, session, system};
use underpass_engine::hint::Action;

/// A file that was opened, and its facts.
pub(crate) struct Original<'a> {
    pub(crate) file: File,
    pub(crate) stat: Stat,
    pub(crate) folder: &'a Arc<Folder>,
    pub(crate) entry: &'a Entry,
    /// The name of its file system.
    pub(crate) system: &'static str,
}

impl Original<'_> {
    /// Whether it is a file, and not a device or FIFO.
    pub(crate) fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::RegularFile
    }

    /// Its length, as far as its facts tell.
    pub(crate) fn len(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }
}

impl Worker<'_> {
    /// Copies a file, or links it if it has another name that was copied.
    pub(crate) fn file(&mut self, folder: &Arc<Folder>, entry: &Entry) -> Result<(), CopyError> {
        self.copy_file(folder, entry, true)
    }

    /// Copies a file; whether a file of several names may be linked instead is up to the caller.
    pub(crate) fn copy_file(
        &mut self,
        folder: &Arc<Folder>,
        entry: &Entry,
        may_link: bool,
    ) -> Result<(), CopyError> {
        let mut original = self.open(folder, entry)?;
        let stat = original.stat;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(Errno::ISDIR).at(Action::Reading, || folder.source_path(&entry.name));
        }
        let verdict = self.verdict(folder, entry, &stat)?;
        if verdict == Verdict::Leave {
            return Ok(());
        }
        if self.is_dry(folder, entry) {
            let between = self.totals.between(original.system, folder.system);
            between.files += u64::from(verdict != Verdict::Resumed);
            match verdict {
                Verdict::Resumed => self.totals.count_resumed(&stat),
                _ => self.totals.files += 1,
            }
            return Ok(());
        }
        if may_link && self.is_linked(folder, entry, &stat)? {
            return Ok(());
        }
        let made = match verdict {
            Verdict::Resumed => self.keep_or_repair(&mut original),
            _ => self.make_file(&mut original, verdict),
        };
        if may_link {
            self.tell_links(folder, entry, &stat, made.is_ok());
        }
        self.count_file();
        made
    }

    /// Opens what is to be copied, which may be something else by now than it was in the listing.
    fn open<'o>(
        &mut self,
        folder: &'o Arc<Folder>,
        entry: &'o Entry,
    ) -> Result<Original<'o>, CopyError> {
        let path = || folder.source_path(&entry.name);
        let mut flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        if !entry.follows {
            flags |= OFlags::NOFOLLOW;
        }
        // A FIFO that has taken a file's place must not hold us up.
        if self.job.settings.recursive {
            flags |= OFlags::NONBLOCK;
        }
        let is_direct = self.job.settings.recursive || entry.kind == FileType::RegularFile;
        let opened = match is_direct {
            true => openat(&folder.source, &entry.name, flags, Mode::empty()),
            false => self.open_interruptibly(folder, entry, flags),
        };
        let file: File = opened.at("opening", path)?.into();
        let stat = fstat(&file).at("looking at", path)?;
        let system = match self.system {
            Some((device, name)) if device == stat.st_dev => name,
            _ => {
                let name = system::name(&file);
                self.system = Some((stat.st_dev, name));
                name
            }
        };
        Ok(Original { file, stat, folder, entry, system })
    }

    /// Opens a source that may wait for another process, as a FIFO does for its writer.
    fn open_interruptibly(
        &self,
        folder: &Folder,
        entry: &Entry,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let at = fcntl_dupfd_cloexec(&folder.source, 0)?;
        let name = entry.name.clone();
        let open = move || Ok(openat(at, name, flags, Mode::empty())?);
        self.job
            .observer
            .open(Box::new(open))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Copies bytes and everything else, and gives the copy its name.
    pub(crate) fn make_file_once(
        &mut self,
        original: &Original<'_>,
        verdict: Verdict,
        in_place: bool,
    ) -> Result<(), CopyError> {
        let (folder, entry, stat) = (original.folder, original.entry, &original.stat);
        let path = || folder.target_path(entry.target());
        let manner = Manner::new(&self.job.settings, original.file.as_fd(), stat, folder.heritage);
        let place = self.place(original, manner, verdict, in_place)?;
        let settings = &self.job.settings;
        if verdict == Verdict::Replace && !original.is_file() && !settings.preserve {
            take_over(folder, entry, &place).at("keeping mode of", path)?;
        }
        let copied = self.copy_bytes(original, &place).and_then(|()| self.verify(original, &place));
        let copied = self.check_version(original, copied);
        if let Err(failure) = copied {
            self.give_up(place, &failure);
            return Err(failure);
        }
        if settings.resume && !folder.is_trusted && original.len() >= PARTIAL {
            session::forget(place.file());
        }
        let is_new = place.is_new();
        let ends = (original.file.as_fd(), place.file().as_fd());
        let heritage = (is_new, folder.heritage);
        let lacking = metadata::keep(settings, ends, stat, manner, heritage, &mut self.totals);
        self.job.remember(|| fstat(place.file()));
        place.commit().at(Action::Writing, path)?;
        if let Some(failure) = lacking.failure(path) {
            self.job.problem(failure);
        }
        self.totals.files += 1;
        self.totals.between(original.system, original.folder.system).files += 1;
        Ok(())
    }

    /// Where the bytes go.
    fn place<'o>(
        &self,
        original: &Original<'o>,
        manner: Manner,
        verdict: Verdict,
        in_place: bool,
    ) -> Result<Place<'o>, CopyError> {
        let (folder, name) = (original.folder, original.entry.target());
        let settings = &self.job.settings;
        let path = || folder.target_path(name);
        let mode = manner.first;
        let existing = match verdict {
            Verdict::Replace => Existing::Replace,
            _ => Existing::Keep,
        };
        if in_place {
            return Place::in_place(folder, name, mode, settings.force, &original.file)
                .at("opening", path);
        }
        if settings.resume && original.len() >= PARTIAL {
            let partial = partial_name(name, &original.stat);
            let partial = OsStr::from_bytes(partial.to_bytes());
            return Place::partial(folder, name, partial, mode, existing)
                .at(Action::Creating, path);
        }
        Place::new(folder, name, mode, existing).at(Action::Creating, path)
    }

    /// What becomes of a copy that has failed: with `--resume` a later run may go on with it, unless
    /// it is known to be wrong.
    fn give_up(&self, place: Place<'_>, failure: &CopyError) {
        if matches!(failure, CopyError::Differs { .. }) || is_change(failure) {
            place.discard();
        }
    }
}

/// Gives what comes from a device or FIFO the permissions of the file that it replaces.
fn take_over(folder: &Folder, entry: &Entry, place: &Place<'_>) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(&folder.target, entry.target(), flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        old => permissions::take_over(place.file(), old?.as_fd()),
    }
}

/// The name of a part of a large file: only that very version of the original goes on with it.
pub(crate) fn partial_name(name: &CStr, stat: &Stat) -> CString {
    let facts = format!(
        "{}:{}:{}:{}.{}",
        stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec
    );
    let number = underpass_engine::atomic_file::fingerprint(facts.as_bytes()) as u32;
    names::hidden(name, Some(number))
}

/// From this size on an interrupted file is worth keeping.
pub(crate) const PARTIAL: u64 = 16 << 20;
