//! What a record says besides samples: system calls, which are counted in a pass of its own because
//! counting takes time, and programs that could not be measured.

use serde::{Deserialize, Serialize};

use super::record::Role;

/// The system calls of one process and all of its threads in the counted pass of a cell.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Counted {
    /// The cell, as an index.
    pub(crate) cell: usize,
    /// Who the process was.
    pub(crate) role: Role,
    /// Its calls from its start to its end, those that took longest first.
    pub(crate) calls: Vec<Call>,
}

/// One system call by name.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Call {
    /// Its name.
    pub(crate) name: String,
    /// How often it was called.
    pub(crate) calls: u64,
    /// How often it failed.
    pub(crate) errors: u64,
    /// Seconds between its begins and its ends, with what watching it took.
    pub(crate) seconds: f64,
}

/// A program that should have taken part.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Missing {
    /// Which one.
    pub(crate) name: String,
    /// Why it did not.
    pub(crate) why: String,
}
