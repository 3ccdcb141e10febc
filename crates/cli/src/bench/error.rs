//! Why a bench could not be run to its end, or a record not be read.

use std::fmt;
use std::path::PathBuf;

use indicatif::BinaryBytes;

use super::record::SCHEMA;

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum BenchError {
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
        }
    }
}

impl std::error::Error for BenchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotARecord { source, .. } => Some(source),
            _ => None,
        }
    }
}
