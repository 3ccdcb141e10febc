//! Parts of a record besides samples: system calls, which are counted in a separate pass because
//! counting takes time, and programs that could not be measured.

use serde::{Deserialize, Serialize};

use super::Role;

/// The system calls of one process and all of its threads in the counted pass of a cell.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Counted {
    /// The cell, as an index.
    pub(crate) cell: usize,
    pub(crate) role: Role,
    /// Its calls, those that took longest first: from its start to its end, of a server during
    /// requests.
    pub(crate) calls: Vec<NamedCall>,
    /// Bytes of bodies that arrived meanwhile, of a server with repeated requests; absent where
    /// everything is moved once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) served_bytes: Option<u64>,
}

impl Counted {
    /// Creates the calls of a process that moved everything once; the cell is set later.
    pub(crate) fn new(role: Role, calls: Vec<NamedCall>) -> Self {
        Self { cell: 0, role, calls, served_bytes: None }
    }

    /// Creates the calls of a server that sent `bytes` of bodies meanwhile.
    pub(crate) fn while_serving(calls: Vec<NamedCall>, bytes: u64) -> Self {
        Self { served_bytes: Some(bytes), ..Self::new(Role::Server, calls) }
    }

    /// Returns the same of this cell.
    pub(crate) fn of(self, cell: usize) -> Self {
        Self { cell, ..self }
    }
}

/// One system call by name.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct NamedCall {
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
pub(crate) struct MissingContender {
    pub(crate) name: String,
    /// Why it did not.
    pub(crate) why: String,
}
