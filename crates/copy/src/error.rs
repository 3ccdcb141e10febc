//! The errors of copying.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, fstat, fstatvfs, stat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{AtomicFile, check_writes};
use underpass_engine::hint::in_words;
use underpass_engine::hint::{Action, Hint, Hinted, PathError};
use underpass_engine::{Error, Mechanism};

pub(crate) type Result<T, E = CopyError> = std::result::Result<T, E>;

/// The reason why an entry was not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The caller asked the copy to stop before everything was copied.
    #[error("cancelled before everything was copied")]
    Cancelled,
    /// The rest was not begun, because all of it would fail.
    #[error("ended before everything was copied")]
    Ended,
    /// A copy was read again and differs from its original.
    #[error("comparing {} with its copy {}: byte {at} differs", .from.display(), .to.display())]
    Differs {
        /// The original.
        from: PathBuf,
        /// The copy.
        to: PathBuf,
        /// The offset of the first byte that differs.
        at: u64,
    },
    /// Source and target are the same, or one is in the other.
    #[error(transparent)]
    Overlap(#[from] Overlap),
    /// A thread of the copy has panicked, which is a bug. Its unfinished entries, and the folders
    /// above them, may be left under hidden names.
    #[error("a thread panicked, so the copy is incomplete")]
    Panicked,
    /// A system call on a file or folder failed.
    #[error("{action} {}: {}", shown(.path), in_words(.source))]
    Path {
        /// The action that failed.
        action: Action,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The copy would destroy something, or makes no sense.
    #[error("{0}")]
    Refused(CopyRefusal),
    /// The transfer of a file's bytes was begun and failed.
    #[error("copying {} to {}: {source}", .from.display(), .to.display())]
    Transfer {
        /// The original.
        from: PathBuf,
        /// The copy.
        to: PathBuf,
        /// The engine's error, with its report.
        source: Error,
    },
}

impl CopyError {
    /// Returns whether something has a name that was free before.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Self::Path { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Returns whether everything else in the folder `target` would fail in the same way. Other
    /// file systems may be mounted in it.
    pub(crate) fn fails_all(&self, target: impl AsFd) -> bool {
        let (path, source) = match self {
            Self::Transfer { to, source: Error::Io { source, .. }, .. } => (to, source),
            Self::Transfer { source: Error::Cancelled { .. }, .. } => return true,
            Self::Path { path, source, .. } => (path, source),
            _ => return false,
        };
        match Errno::from_io_error(source) {
            Some(Errno::ROFS) => {
                fstatvfs(target).is_ok_and(|it| it.f_flag.contains(StatVfsMountFlags::RDONLY))
            }
            // One folder may have a separate quota, or accept no further names.
            Some(Errno::NOSPC | Errno::DQUOT) if has_room(&target, self.ample()) => false,
            Some(Errno::NOSPC | Errno::DQUOT) => {
                let above = path.parent().filter(|above| !above.as_os_str().is_empty());
                let failed = stat(above.unwrap_or(Path::new(".")));
                // If the path cannot be resolved, no other file system is known.
                !failed.is_ok_and(|it| fstat(target).is_ok_and(|top| top.st_dev != it.st_dev))
            }
            _ => false,
        }
    }

    /// Returns a number of bytes for which a full disk has no room, even once this file, and those
    /// of other workers that did not fit either, are removed.
    fn ample(&self) -> u64 {
        let Self::Transfer { from, .. } = self else { return AMPLE };
        let found = stat(from).ok().and_then(|found| u64::try_from(found.st_blocks).ok());
        found.unwrap_or(0) * 512 * 2 + AMPLE
    }
}

/// Returns whether a folder has room for a file with this many bytes, as far as is known.
fn has_room(folder: impl AsFd, len: u64) -> bool {
    let made = || -> io::Result<()> {
        let found = fstatvfs(&folder)?;
        // btrfs and file systems without fallocate(2) reserve nothing below; some have no counts.
        if found.f_blocks > 0 && found.f_bavail.saturating_mul(found.f_frsize) < len {
            return Err(Errno::NOSPC.into());
        }
        let folder = folder.as_fd().try_clone_to_owned()?;
        let file = AtomicFile::create_in(folder, OsStr::new("room"), 0o600)?;
        file.file().write_all_at(&[1; 4096], 0)?;
        file.reserve(len)?;
        Ok(check_writes(file.file())?)
    };
    // Where no file can be created, nothing is known.
    !made().is_err_and(|error| {
        matches!(Errno::from_io_error(&error), Some(Errno::NOSPC | Errno::DQUOT))
    })
}

/// The problems of a copy.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    pub(crate) failures: Vec<CopyError>,
    pub(crate) count: usize,
}

impl Problems {
    pub(crate) fn push(&mut self, failure: CopyError) {
        self.count += 1;
        if self.failures.len() < MAX_PROBLEMS {
            self.failures.push(failure);
        }
    }
}

/// The maximum number of problems that are kept; further ones are only counted.
const MAX_PROBLEMS: usize = 1000;

/// A disk with this many bytes of room beyond the size of the file is not full.
const AMPLE: u64 = 16 << 20;

/// The reason for refusing a copy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyRefusal {
    /// The target exists, and the options forbid replacing it.
    #[error("{} exists: not replaced", .to.display())]
    Exists {
        /// The existing entry.
        to: PathBuf,
    },
    /// The source is the backup that would be replaced by that of the target.
    #[error("{} would be replaced by the backup of {}: not copied", .from.display(), .to.display())]
    IsBackup {
        /// The source.
        from: PathBuf,
        /// The target.
        to: PathBuf,
    },
    /// The copy would replace an entry that the same call has copied before.
    #[error("{} would replace {}, which this command has just created", .from.display(), .to.display())]
    JustMade {
        /// The original.
        from: PathBuf,
        /// The file that it would replace.
        to: PathBuf,
    },
    /// Several sources need a folder as target.
    #[error("{} is not a folder: several sources need one", .target.display())]
    NoFolder {
        /// The path that is no folder.
        target: PathBuf,
    },
    /// Another kind of entry has replaced a file, and might never end when read.
    #[error("{} is not a file any more: not copied", .from.display())]
    NotAFile {
        /// The path of the file.
        from: PathBuf,
    },
    /// A source that keeps its path would be put outside of the target.
    #[error("{} has .. in it, which leads out of the target", .from.display())]
    Outside {
        /// The source.
        from: PathBuf,
    },
    /// A symbolic link to a relative path would lead elsewhere from another folder.
    #[error(
        "{} would not point to its source: outside of the current folder, links need an \
         absolute source path",
        .to.display()
    )]
    RelativeLink {
        /// The link.
        to: PathBuf,
    },
}

/// How a source and its target overlap.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Overlap {
    /// A source is in its target, from which it could be removed.
    #[error("{} is in {}: nothing was deleted there", .from.display(), .to.display())]
    InTarget {
        /// The source.
        from: PathBuf,
        /// The target.
        to: PathBuf,
    },
    /// A folder would be copied into itself.
    #[error("{} cannot be copied into itself, {}", .from.display(), .to.display())]
    IntoItself {
        /// The folder.
        from: PathBuf,
        /// The target in it.
        to: PathBuf,
    },
    /// The folder is the target of this very copy.
    #[error("{} is the target of this copy: left out", .from.display())]
    IsTarget {
        /// The folder, which is left out.
        from: PathBuf,
    },
    /// Source and target are the same file.
    #[error("{} and {} are the same file", .from.display(), .to.display())]
    SameFile {
        /// The source.
        from: PathBuf,
        /// The target.
        to: PathBuf,
    },
    /// Source and target are the same folder.
    #[error("{} and {} are the same folder", .from.display(), .to.display())]
    SameFolder {
        /// The source.
        from: PathBuf,
        /// The target.
        to: PathBuf,
    },
}

impl From<PathError> for CopyError {
    fn from(PathError { action, path, source }: PathError) -> Self {
        Self::Path { action, path, source }
    }
}

impl Hinted for CopyError {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::Differs { .. } => {
                Some(Hint::new("a program is writing to one of them, or the disk is failing"))
            }
            Self::Path { action, source, .. } => action.hint(source),
            Self::Cancelled
            | Self::Ended
            | Self::Overlap(_)
            | Self::Panicked
            | Self::Refused(_) => None,
            Self::Transfer { source, .. } => match source {
                Error::Declined { mechanism: Mechanism::Reflink, .. } => Some(Hint::new(
                    "leave out --reflink=always or --mechanism to use what the kernel offers",
                )),
                _ => source.hint(),
            },
        }
    }
}

/// Returns whether a file could not be replaced, though it can perhaps be written to.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ACCESS | Errno::PERM | Errno::BUSY))
}

/// Returns a path for messages; an empty one is shown in quotes.
fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { "''".to_owned() } else { path.display().to_string() }
}

/// Turns an error of the system into a [`CopyError`]; builds the path only if there is an error.
pub(crate) trait At<T> {
    /// Adds the path, and the `action` that failed on it.
    fn at<P: Into<PathBuf>>(self, action: impl Into<Action>, path: impl FnOnce() -> P)
    -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at<P: Into<PathBuf>>(
        self,
        action: impl Into<Action>,
        path: impl FnOnce() -> P,
    ) -> Result<T> {
        self.map_err(|source| CopyError::Path {
            action: action.into(),
            path: path().into(),
            source: source.into(),
        })
    }
}
