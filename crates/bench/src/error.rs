//! Why a bench could not be run to its end, or a record not be read.

use std::fmt;
use std::io;
use std::path::PathBuf;

use indicatif::BinaryBytes;

use rustix::io::Errno;
use underpass_engine::hint::{Action, Hint, Hinted, Plain};

use crate::record::SCHEMA;

/// Why there is no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum BenchError {
    /// A process that was being measured failed.
    Child {
        /// What it was doing.
        what: String,
        /// Its own last words.
        said: String,
    },
    /// What arrived was not what was sent.
    Differs {
        /// What was being measured.
        what: String,
    },
    /// SIGINT or SIGTERM.
    Interrupted,
    /// The file is no record, or a damaged one.
    NotARecord {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The connections of this bench need more open files than this user may have.
    OpenFiles {
        /// How many.
        needed: u64,
    },
    /// Other bytes were moved, or by another mechanism, than was required: never measured.
    Other {
        /// What was being measured.
        what: String,
        /// What the receipt says instead.
        ran: String,
    },
    /// The record was written by another version of this program.
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema it names.
        found: u64,
    },
    /// Something about an address or a connection.
    Network {
        /// What was being done, such as `connecting to`.
        action: &'static str,
        /// With which address.
        address: String,
        /// What the system answered.
        source: io::Error,
    },
    /// Something about a file.
    Path {
        /// What was being done, such as `opening`.
        action: Action,
        /// With which file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The files would not fit.
    Space {
        /// Where they were to be made.
        folder: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// Two records cannot be compared.
    Unlike {
        /// One file.
        old: PathBuf,
        /// The other one.
        new: PathBuf,
        /// Why not.
        why: String,
    },
    /// The arguments make no sense.
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

/// The system's words without the `(os error 2)` that std appends.
pub(crate) fn plain(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::INTR) => "cancelled".to_owned(),
        _ => Plain(error).to_string(),
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Child { what, said } => write!(f, "measuring {what}: {said}"),
            Self::Differs { what } => {
                write!(f, "measuring {what}: what arrived is not what was sent")
            }
            Self::Interrupted => f.write_str("the bench was interrupted"),
            Self::NotARecord { path, source } => {
                write!(f, "reading {}: not a record of a bench: {source}", path.display())
            }
            Self::OpenFiles { needed } => {
                write!(f, "this bench needs {needed} open files, see ulimit -Hn")
            }
            Self::Other { what, ran } => write!(f, "measuring {what}: the receipt says {ran}"),
            Self::Schema { path, found } => {
                let path = path.display();
                write!(
                    f,
                    "reading {path}: a record of schema {found}, this program reads {SCHEMA}"
                )?;
                if *found > SCHEMA {
                    f.write_str("; a newer underpass wrote it")?;
                }
                Ok(())
            }
            Self::Network { action, address, source } => {
                write!(f, "{action} {address}: {}", plain(source))
            }
            Self::Path { action, path, source } => {
                write!(f, "{action} {}: {}", path.display(), plain(source))
            }
            Self::Space { folder, needed, free } => write!(
                f,
                "{}: the files of this bench need {}, and {} are free",
                folder.display(),
                BinaryBytes(*needed),
                BinaryBytes(*free)
            ),
            Self::Unlike { old, new, why } => {
                write!(f, "comparing {} with {}: {why}", old.display(), new.display())
            }
            Self::Usage(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for BenchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotARecord { source, .. } => Some(source),
            Self::Network { source, .. } | Self::Path { source, .. } => Some(source),
            _ => None,
        }
    }
}
