//! The reason why a bench could not be completed, or a record could not be read.

use std::fmt;
use std::path::PathBuf;

use underpass_engine::hint::{Hint, Hinted, PathError};
pub(crate) use underpass_engine::hint::{WithPath, in_words as plain};
use underpass_engine::socket::CongestionUnavailable;

use crate::record::Unit;

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// SIGINT or SIGTERM.
    #[error("the bench was interrupted")]
    Interrupted,
    /// A measured program failed, or did something other than it should.
    #[error("measuring {what}: {why}")]
    Measuring {
        /// The measurement.
        what: String,
        /// The fault.
        why: String,
    },
    /// An error of a file or a connection; also a file that is not a record, or a record that is
    /// damaged or of another version of this program.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The files or the connections of this bench exceed a resource of this system.
    #[error(transparent)]
    Shortage(#[from] Shortage),
    /// Two records cannot be compared.
    #[error("comparing {} with {}: {why}", .old.display(), .new.display())]
    Unlike {
        /// One file.
        old: PathBuf,
        /// The other one.
        new: PathBuf,
        /// The reason.
        why: String,
    },
    /// The requested measurement is not possible here.
    #[error(transparent)]
    Usage(#[from] UsageError),
}

/// The resource of which the system has too little.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Shortage {
    /// Another run has changed the congestion control of the system, or relies on it.
    #[error(
        "another bench is running that needs the system's congestion control as it is: wait for \
         its end"
    )]
    CongestionInUse,
    /// The limit of open files is too low and cannot be raised.
    #[error("this bench needs {needed} open files, see ulimit -Hn")]
    OpenFiles {
        /// The number of files.
        needed: u64,
    },
    /// A file system has too little free space.
    #[error(
        "{}: the files of this bench need {}, and {} are free",
        .folder.display(), Unit::Bytes.show(*.needed as f64), Unit::Bytes.show(*.free as f64)
    )]
    Space {
        /// A folder on it.
        folder: PathBuf,
        /// The bytes that are needed.
        needed: u64,
        /// The bytes that are free.
        free: u64,
    },
}

/// The reason why a requested measurement is not possible.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// The program under test has refused its arguments.
    #[error("{0}")]
    Arguments(String),
    /// The system does not have this congestion control, or does not allow it.
    #[error(transparent)]
    CongestionControl(#[from] CongestionUnavailable),
    /// The congestion control of the system can only be set by root.
    #[error("--congestion changes a setting of the system, which only root may do: run it as root")]
    CongestionNeedsRoot,
    /// None of the contenders can be started.
    #[error("none of these programs is installed")]
    NoContender,
    /// A network of two namespaces can only be made by root.
    #[error("--over veth makes network namespaces, which only root may do: run it as root")]
    NotRoot,
    /// A program is not installed.
    #[error("{0} is not installed")]
    NotInstalled(&'static str),
}

impl Hinted for BenchError {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::Path(error) => error.hint(),
            _ => None,
        }
    }
}

/// The result of a bench.
pub type Result<T> = std::result::Result<T, BenchError>;

impl BenchError {
    pub(crate) fn measuring(what: impl fmt::Display, why: impl Into<String>) -> Self {
        Self::Measuring { what: what.to_string(), why: why.into() }
    }

    pub(crate) fn differs(what: impl fmt::Display) -> Self {
        Self::measuring(what, "what arrived is not what was sent")
    }

    /// Creates the error of a transfer of other bytes than required, or by another mechanism.
    pub(crate) fn other(what: impl fmt::Display, ran: &str) -> Self {
        Self::measuring(what, format!("the receipt says {ran}"))
    }
}
