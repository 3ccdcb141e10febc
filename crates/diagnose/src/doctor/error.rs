//! The reason why two ends could not be examined.

use std::io;
use std::path::PathBuf;

use underpass_engine::hint::{Action, Hint, Hinted, Plain};

/// The reason why two ends were not examined. A problem of the ends themselves is a finding, not an
/// error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoctorError {
    /// The name of a host could not be looked up.
    #[error("{action} {host}: {}", Plain(.source))]
    Network {
        /// The action, such as `looking up`.
        action: &'static str,
        /// The host.
        host: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The kernel refused something about a file.
    #[error("{action} {}: {}", .path.display(), Plain(.source))]
    Path {
        /// The action that failed.
        action: Action,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused something about this process.
    #[error("{action}: {}", Plain(.source))]
    System {
        /// The action, such as `creating a file for the trials`.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No trial is possible with the named ends.
    #[error(transparent)]
    Unsuitable(#[from] UnsuitableEnd),
}

/// The reason why no trial is possible with an end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnsuitableEnd {
    /// The source is an empty file.
    #[error("{} is empty: name a file with something in it", .0.display())]
    EmptySource(PathBuf),
    /// Standard output, which is the target, cannot be imitated.
    #[error("standard output is neither a file nor a pipe: redirect it, or name a file")]
    StandardOutput,
    /// The source gives its bytes only once.
    #[error("{} is a device or a stream: name a file or a folder", .0.display())]
    StreamSource(PathBuf),
    /// A trial would write into the target.
    #[error("{} is neither a file nor a folder: the doctor does not write to it", .0.display())]
    StreamTarget(PathBuf),
}

/// The result type of the doctor's modules.
pub(super) type Result<T> = std::result::Result<T, DoctorError>;

impl Hinted for DoctorError {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::Network { source, .. } => Hint::of_network(source),
            Self::Path { action, source, .. } => action.hint(source),
            Self::System { .. } | Self::Unsuitable(_) => None,
        }
    }
}

/// Turns an error of the system into one that names the file.
pub(super) trait WithPath<T> {
    /// Adds `path` and the `action` that was being done with it.
    fn with_path(self, action: impl Into<Action>, path: impl Into<PathBuf>) -> Result<T>;
}

impl<T, E: Into<io::Error>> WithPath<T> for std::result::Result<T, E> {
    fn with_path(self, action: impl Into<Action>, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(|source| DoctorError::Path {
            action: action.into(),
            path: path.into(),
            source: source.into(),
        })
    }
}
