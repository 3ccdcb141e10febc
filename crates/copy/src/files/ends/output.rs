//! The destination of a transfer's bytes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, SeekFrom, accessat, fstat, ftruncate, seek};
use rustix::io::Errno;
use underpass_engine::atomic_file::{
    self, AtomicFile, Existing, KeptOwner, check_writes, folder_at, lock_file, take_over_named,
};
use underpass_engine::hint::{Action, PathError, WithPath};
use underpass_engine::{Sink, is_file};
use underpass_sys::duplicate;

use super::open::{Opener, cursor, open, standard};
use super::{EndError, followed, is_stdout, open_file_number};

/// The treatment of a target that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverwriteRule {
    /// Refuse.
    Never,
    /// Replace it if this user may write to it.
    IfWritable,
    /// Replace it.
    Always,
}

/// The destination of a transfer's bytes.
#[derive(Debug)]
pub struct OutputTarget {
    path: PathBuf,
    place: OpenTarget,
}

#[derive(Debug)]
enum OpenTarget {
    /// The end of an existing file, which is appended to.
    End { file: File, at: u64 },
    /// A file that gets its name when it is complete.
    New {
        atomic: AtomicFile,
        existing: Existing,
        overwrite: OverwriteRule,
        /// The owner of a file that replaces another and keeps its permissions; `None` if it keeps
        /// neither.
        kept: Option<KeptOwner>,
    },
    /// A device, a FIFO or standard output: written to in place, from its cursor if it has one.
    Open { file: File, at: u64 },
}

impl OutputTarget {
    /// Prepares a new file at `path`, which gets the permissions and the owner of a file that it
    /// replaces; a device, a FIFO or `-` is opened as it is.
    ///
    /// # Errors
    ///
    /// If the path cannot be opened, or exists and `overwrite` forbids to replace it.
    pub fn create(
        path: &Path,
        overwrite: OverwriteRule,
        opener: Opener<'_>,
    ) -> Result<Self, EndError> {
        Self::create_with(path, overwrite, Some(KeptOwner::Old), opener)
    }

    /// Does what [`create`](Self::create) does; the new file gets the permissions of a file that it
    /// replaces and the owner that `kept` tells, or neither if that is `None`.
    pub(super) fn create_with(
        path: &Path,
        overwrite: OverwriteRule,
        kept: Option<KeptOwner>,
        opener: Opener<'_>,
    ) -> Result<Self, EndError> {
        if is_stdout(path) {
            return Ok(Self::stdout()?);
        }
        if let Some(number) = open_file_number(path) {
            return Ok(Self::descriptor(path, number).with_path("opening", path)?);
        }
        let path = followed(path)?;
        let existing = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Existing::Keep,
            Err(error) => Err(error).with_path("looking at", &path)?,
            Ok(found) if found.is_dir() => Err(Errno::ISDIR).with_path(Action::Writing, &path)?,
            Ok(found) if found.is_file() => {
                may_replace(&path, overwrite)?;
                Existing::Replace
            }
            // What open(2) would say; a user who cannot write to it would hear of that instead.
            Ok(found) if found.file_type().is_socket() => {
                Err(Errno::NXIO).with_path("opening", &path)?
            }
            Ok(_) => {
                let file = open(&path, OpenOptions::new().write(true), opener);
                let file = file.with_path("opening", &path)?;
                return Ok(Self { path, place: OpenTarget::Open { file, at: 0 } });
            }
        };
        let atomic = AtomicFile::create(&path, 0o666).with_path(Action::Creating, &path)?;
        if existing == Existing::Replace {
            keep_mode(&path, &atomic, kept).with_path("keeping mode of", &path)?;
        }
        Ok(Self { path, place: OpenTarget::New { atomic, existing, overwrite, kept } })
    }

    /// Truncates and returns the file at `path`, which may be written to, but not replaced.
    pub(super) fn in_place(path: &Path) -> Result<Self, PathError> {
        let file = OpenOptions::new().write(true).truncate(true).open(path);
        let file = file.with_path("opening", path)?;
        Ok(Self { path: path.to_owned(), place: OpenTarget::Open { file, at: 0 } })
    }

    /// Returns the end of the file at `path`; a new file if there is none.
    ///
    /// # Errors
    ///
    /// If the path cannot be opened, or another process has locked the file.
    pub fn append(path: &Path, opener: Opener<'_>) -> Result<Self, EndError> {
        if open_file_number(path).is_some() {
            return Self::create(path, OverwriteRule::Always, opener);
        }
        atomic_file::check_link(path)?;
        // Not O_APPEND: only the mechanism read_write can write to such a file.
        match open(path, OpenOptions::new().write(true), opener) {
            Ok(file) if is_file(&fstat(&file).with_path("looking at", path)?) => {
                // Two processes would write at the same offset.
                if lock_file(&file).is_err() {
                    return Err(EndError::Locked(path.to_owned()));
                }
                let place = OpenTarget::End { file, at: 0 };
                let mut target = Self { path: path.to_owned(), place };
                target.find_end()?;
                Ok(target)
            }
            Ok(file) => Ok(Self { path: path.to_owned(), place: OpenTarget::Open { file, at: 0 } }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::create(path, OverwriteRule::Never, opener)
            }
            Err(error) => Ok(Err(error).with_path("opening", path)?),
        }
    }

    /// Finds the end of a file that is appended to again: others may have written to it since.
    ///
    /// # Errors
    ///
    /// As fstat(2).
    pub fn find_end(&mut self) -> Result<(), PathError> {
        if let OpenTarget::End { file, at } = &mut self.place {
            *at = file.metadata().with_path("looking at", &self.path)?.len();
        }
        Ok(())
    }

    /// Returns the file of a descriptor that this process has inherited.
    fn descriptor(path: &Path, number: i32) -> io::Result<Self> {
        let file = File::from(duplicate(number)?);
        let at = cursor(&file)?;
        Ok(Self { path: path.to_owned(), place: OpenTarget::Open { file, at } })
    }

    fn stdout() -> Result<Self, PathError> {
        let path = PathBuf::from("standard output");
        let file = standard(&io::stdout(), OpenOptions::new().write(true));
        let file = file.with_path("opening", &path)?;
        let at = cursor(&file).with_path("looking at", &path)?;
        Ok(Self { path, place: OpenTarget::Open { file, at } })
    }

    /// Returns the sink that the engine writes to.
    ///
    /// # Errors
    ///
    /// As [`Sink::of`].
    pub fn sink(&self) -> Result<Sink<&File>, PathError> {
        Ok(Sink::of(self.file()).with_path(Action::Writing, &self.path)?.at(self.at()))
    }

    /// Returns the offset of the first byte; `None` if the target has no offsets.
    #[must_use]
    pub fn at(&self) -> u64 {
        match self.place {
            OpenTarget::New { .. } => 0,
            OpenTarget::End { at, .. } | OpenTarget::Open { at, .. } => at,
        }
    }

    /// Returns the file itself.
    #[must_use]
    pub fn file(&self) -> &File {
        match &self.place {
            OpenTarget::New { atomic, .. } => atomic.file(),
            OpenTarget::End { file, .. } | OpenTarget::Open { file, .. } => file,
        }
    }

    /// Returns its name for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether this is a new file, whose mode, times and size are still to be set.
    #[must_use]
    pub fn is_new(&self) -> bool {
        matches!(self.place, OpenTarget::New { .. })
    }

    /// Returns whether bytes are appended to a file, which is truncated if that fails.
    #[must_use]
    pub fn is_appended(&self) -> bool {
        matches!(self.place, OpenTarget::End { .. })
    }

    /// Returns whether this replaces a file and keeps its permissions.
    #[must_use]
    pub fn keeps_old(&self) -> bool {
        matches!(self.place, OpenTarget::New { existing: Existing::Replace, kept: Some(_), .. })
    }

    /// Treats a file that has appeared under the name of a new one as if it had been there before,
    /// and returns whether one has.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn look_again(&mut self) -> Result<bool, PathError> {
        let OpenTarget::New { atomic, existing: existing @ Existing::Keep, overwrite, kept } =
            &mut self.place
        else {
            return Ok(false);
        };
        let has_appeared = fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_file());
        if has_appeared && *overwrite != OverwriteRule::Never {
            may_replace(&self.path, *overwrite)?;
            keep_mode(&self.path, atomic, *kept).with_path("keeping mode of", &self.path)?;
            *existing = Existing::Replace;
        }
        Ok(*existing == Existing::Replace)
    }

    /// Reserves space for `len` bytes, before the first is written.
    ///
    /// # Errors
    ///
    /// If they do not fit.
    pub fn reserve(&self, len: u64) -> Result<(), PathError> {
        match &self.place {
            OpenTarget::New { atomic, .. } => {
                atomic.reserve(len).with_path("reserving space for", &self.path)
            }
            OpenTarget::End { .. } | OpenTarget::Open { .. } => Ok(()),
        }
    }

    /// Has [`finish`](Self::finish) wait until a new file and its name are on the disk.
    #[must_use]
    pub fn durable(self) -> Self {
        let place = match self.place {
            OpenTarget::New { atomic, existing, overwrite, kept } => {
                OpenTarget::New { atomic: atomic.durable(), existing, overwrite, kept }
            }
            place => place,
        };
        Self { place, ..self }
    }

    /// Gives the file its name once all bytes are written.
    ///
    /// # Errors
    ///
    /// If the bytes cannot be written to the disk, or the file cannot get its name.
    pub fn finish(self, bytes: u64) -> Result<(), PathError> {
        match self.place {
            OpenTarget::New { atomic, existing, .. } => {
                atomic.commit(existing).with_path(Action::Writing, self.path)
            }
            OpenTarget::Open { file, at } => {
                check_writes(&file).with_path(Action::Writing, self.path)?;
                // Pipes and devices have no cursor. A file that is standard output has one, which
                // the next command of a script writes from.
                let _ = seek(&file, SeekFrom::Start(at + bytes));
                Ok(())
            }
            OpenTarget::End { file, at } => {
                check_end(&file, at + bytes).with_path(Action::Writing, &self.path)?;
                let written =
                    check_writes(&file).or_else(|errno| ftruncate(&file, at).and(Err(errno)));
                written.with_path(Action::Writing, self.path)
            }
        }
    }

    /// Cleans up after a transfer that failed after this many bytes: a new file vanishes by itself,
    /// an appended one is truncated, unless that would remove what another program has appended.
    ///
    /// # Errors
    ///
    /// If another program has appended to the file, and as ftruncate(2).
    pub fn abandon(self, bytes: u64) -> Result<(), PathError> {
        match self.place {
            OpenTarget::End { file, at } => {
                let cut = check_end(&file, at + bytes).and_then(|()| Ok(ftruncate(&file, at)?));
                cut.with_path("cutting back", self.path)
            }
            OpenTarget::New { .. } | OpenTarget::Open { .. } => Ok(()),
        }
    }
}

/// Checks that a file that was appended to ends where it was appended to last.
fn check_end(file: &File, end: u64) -> io::Result<()> {
    if file.metadata()?.len() == end {
        Ok(())
    } else {
        Err(io::Error::other("another program has written to it during the transfer"))
    }
}

/// Gives a new file the permissions, and the owner, of the one that it is to replace.
fn keep_mode(path: &Path, atomic: &AtomicFile, kept: Option<KeptOwner>) -> io::Result<()> {
    let Some(owner) = kept else { return Ok(()) };
    let folder = folder_at(CWD, atomic_file::folder_of(path))?;
    take_over_named(atomic.file(), folder, path.file_name().unwrap_or_default(), owner)?;
    Ok(())
}

fn may_replace(path: &Path, overwrite: OverwriteRule) -> Result<(), PathError> {
    match overwrite {
        OverwriteRule::Never => Err(Errno::EXIST).with_path(Action::Writing, path),
        OverwriteRule::IfWritable => {
            let access = accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS);
            access.with_path(Action::Replacing, path)
        }
        OverwriteRule::Always => Ok(()),
    }
}
