//! Why a bench could not be completed, or a record not be read.

use std::fmt;
use std::io;
use std::path::PathBuf;

pub(crate) use underpass_engine::hint::in_words as plain;
use underpass_engine::hint::{Action, Hint, Hinted};

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// SIGINT or SIGTERM.
    #[error("the bench was interrupted")]
    Interrupted,
    /// What was to be measured failed, or did something else than it should: never measured.
    #[error("measuring {what}: {why}")]
    Measuring {
        /// What was being measured.
        what: String,
        /// What went wrong.
        why: String,
    },
    /// Something about an address or a connection.
    #[error("{action} {address}: {}", plain(.source))]
    Network {
        /// What was being done, such as `connecting to`.
        action: &'static str,
        /// With which address.
        address: String,
        /// What the system answered.
        source: io::Error,
    },
    /// Something about a file.
    #[error("{action} {}: {}", .path.display(), plain(.source))]
    Path {
        /// What was being done, such as `opening`.
        action: Action,
        /// With which file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The file is no record, a damaged one, or one of another version of this program.
    #[error("reading {}: {why}", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The files or the connections of this bench exceed what this system has.
    #[error("{0}")]
    Room(String),
    /// Two records cannot be compared.
    #[error("comparing {} with {}: {why}", .old.display(), .new.display())]
    Unlike {
        /// One file.
        old: PathBuf,
        /// The other one.
        new: PathBuf,
        /// Why not.
        why: String,
    },
    /// The arguments make no sense.
    #[error("{0}")]
    Usage(String),
}

impl Hinted for BenchError {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::Network { source, .. } => Hint::of_network(source),
            Self::Path { action, source, .. } => action.hint(source),
            _ => None,
        }
    }
}

/// What the bench returns.
pub type Result<T> = std::result::Result<T, BenchError>;

impl BenchError {
    pub(crate) fn measuring(what: impl fmt::Display, why: impl Into<String>) -> Self {
        Self::Measuring { what: what.to_string(), why: why.into() }
    }

    pub(crate) fn differs(what: impl fmt::Display) -> Self {
        Self::measuring(what, "what arrived is not what was sent")
    }

    /// Other bytes were moved, or by another mechanism, than was required.
    pub(crate) fn other(what: impl fmt::Display, ran: &str) -> Self {
        Self::measuring(what, format!("the receipt says {ran}"))
    }
}
/// Turns an error of the system into one that names the file.
pub(crate) trait WithPath<T> {
    /// `action` is what was being done with `path`.
    fn with_path(self, action: impl Into<Action>, path: impl Into<PathBuf>) -> Result<T>;
}

impl<T, E: Into<io::Error>> WithPath<T> for std::result::Result<T, E> {
    fn with_path(self, action: impl Into<Action>, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(|source| BenchError::Path {
            action: action.into(),
            path: path.into(),
            source: source.into(),
        })
    }
}
