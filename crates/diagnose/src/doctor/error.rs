//! The reason why two ends could not be examined.

use std::io;
use std::path::PathBuf;

pub(super) use underpass_engine::hint::WithPath;
use underpass_engine::hint::{Hint, Hinted, PathError, Plain};

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
    #[error(transparent)]
    Path(#[from] PathError),
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
            Self::Path(error) => error.hint(),
            Self::System { .. } | Self::Unsuitable(_) => None,
        }
    }
}
