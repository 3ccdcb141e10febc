//! Why something was not copied.

use std::path::PathBuf;
use std::{fmt, io};

use underpass_engine::Error;
use underpass_engine::hint::in_words;
use underpass_engine::hint::{Action, Hint, Hinted};

/// Why something was not copied.
#[derive(Debug)]
#[non_exhaustive]
pub enum CopyError {
    /// The caller asked the copy to stop before everything was copied.
    Cancelled,
    /// A copy was read again and is not what its original is.
    Differs {
        /// The original.
        from: PathBuf,
        /// The copy.
        to: PathBuf,
        /// The offset of the first byte that differs.
        at: u64,
    },
    /// A thread of the copy has panicked, which is a bug. What it was doing, and the folders that it
    /// was in, may be left under hidden names.
    Panicked,
    /// The system refused something about a file or folder.
    Path {
        /// What was being done.
        action: Action,
        /// With which file or folder.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The copy would destroy something, or makes no sense.
    Refused(Refusal),
    /// The transfer of a file's bytes was begun and failed.
    Transfer {
        /// The original.
        from: PathBuf,
        /// The copy.
        to: PathBuf,
        /// What the engine says, with its report.
        source: Error,
    },
}

/// What would have been wrong with a copy.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Something has the name, and nothing is to be replaced.
    Exists {
        /// What is there.
        to: PathBuf,
    },
    /// The source is the backup that would be replaced by that of the target.
    IsBackup {
        /// The source.
        from: PathBuf,
        /// The target.
        to: PathBuf,
    },
    /// A symbolic link to a relative path would lead elsewhere from another folder.
    RelativeLink {
        /// The link.
        to: PathBuf,
    },
    /// A folder would be copied into itself.
    IntoItself {
        /// The folder.
        from: PathBuf,
        /// The target in it.
        to: PathBuf,
    },
    /// The folder is the target of this very copy.
    IsTarget {
        /// The folder, which is left out.
        from: PathBuf,
    },
    /// The copy would replace what the same call has copied before.
    JustMade {
        /// The original.
        from: PathBuf,
        /// What it would replace.
        to: PathBuf,
    },
    /// A source is in its target, from which it could be removed.
    InTarget {
        /// The source.
        from: PathBuf,
        /// The target.
        to: PathBuf,
    },
    /// A source that keeps its path would be put outside of the target.
    Outside {
        /// The source.
        from: PathBuf,
    },
    /// Several sources need a folder as target.
    NoFolder {
        /// What is no folder.
        target: PathBuf,
    },
    /// Source and target are the same file.
    SameFile {
        /// The source.
        from: PathBuf,
        /// The target.
        to: PathBuf,
    },
    /// Source and target are the same folder.
    SameFolder {
        /// The source.
        from: PathBuf,
        /// The target.
        to: PathBuf,
    },
}

impl Hinted for CopyError {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::Differs { .. } => {
                Some(Hint::new("something writes to one of them, or the disk is broken"))
            }
            Self::Path { action, source, .. } => action.hint(source),
            Self::Cancelled | Self::Panicked | Self::Refused(_) => None,
            Self::Transfer { source, .. } => source.hint(),
        }
    }
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled before everything was copied"),
            Self::Differs { from, to, at } => {
                let (from, to) = (from.display(), to.display());
                write!(f, "comparing {from} with its copy {to}: byte {at} differs")
            }
            Self::Panicked => {
                f.write_str("a thread of the copy has panicked, so something is missing")
            }
            Self::Path { action, path, source } if path.as_os_str().is_empty() => {
                write!(f, "{action} '': {}", in_words(source))
            }
            Self::Path { action, path, source } => {
                write!(f, "{action} {}: {}", path.display(), in_words(source))
            }
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Transfer { from, to, source } => {
                write!(f, "copying {} to {}: {source}", from.display(), to.display())
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists { to } => write!(f, "{} exists: not replaced", to.display()),
            Self::IsBackup { from, to } => {
                let (from, to) = (from.display(), to.display());
                write!(f, "{from} would be replaced by the backup of {to}: not copied")
            }
            Self::RelativeLink { to } => write!(
                f,
                "{} would lead elsewhere: outside of the current folder, links need sources with an absolute path",
                to.display()
            ),
            Self::IntoItself { from, to } => {
                write!(f, "{} cannot be copied into itself, {}", from.display(), to.display())
            }
            Self::IsTarget { from } => {
                write!(f, "{} is where it is copied to: left out", from.display())
            }
            Self::JustMade { from, to } => {
                let (from, to) = (from.display(), to.display());
                write!(f, "{from} would replace {to}, which was just made")
            }
            Self::InTarget { from, to } => {
                let (from, to) = (from.display(), to.display());
                write!(f, "{from} is in {to}: nothing was deleted there")
            }
            Self::Outside { from } => {
                write!(f, "{} has .. in it, which leads out of the target", from.display())
            }
            Self::NoFolder { target } => {
                write!(f, "{} is no folder: several sources need one", target.display())
            }
            Self::SameFile { from, to } => {
                write!(f, "{} and {} are the same file", from.display(), to.display())
            }
            Self::SameFolder { from, to } => {
                write!(f, "{} and {} are the same folder", from.display(), to.display())
            }
        }
    }
}

impl std::error::Error for CopyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Path { source, .. } => Some(source),
            Self::Transfer { source, .. } => Some(source),
            Self::Cancelled | Self::Differs { .. } | Self::Panicked | Self::Refused(_) => None,
        }
    }
}

/// Turns an error of the system into a [`CopyError`]; the path is put together only if there is one.
pub(crate) trait At<T> {
    /// `action` is what was being done with the path.
    fn at<P: Into<PathBuf>>(
        self,
        action: impl Into<Action>,
        path: impl FnOnce() -> P,
    ) -> Result<T, CopyError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at<P: Into<PathBuf>>(
        self,
        action: impl Into<Action>,
        path: impl FnOnce() -> P,
    ) -> Result<T, CopyError> {
        self.map_err(|source| CopyError::Path {
            action: action.into(),
            path: path().into(),
            source: source.into(),
        })
    }
}
