//! Parts of a record other than samples: system calls, which are counted in a separate pass because
//! counting takes time, and programs that could not be measured.

use serde::{Deserialize, Serialize};

use super::Role;

/// The system calls of one process and all of its threads in the counted pass of a cell.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Counted {
    pub(crate) cell: usize,
    pub(crate) role: Role,
    pub(crate) calls: Vec<NamedCall>,
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

    /// Returns these calls for this cell.
    pub(crate) fn of(self, cell: usize) -> Self {
        Self { cell, ..self }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct NamedCall {
    pub(crate) name: String,
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct MissingContender {
    pub(crate) name: String,
    pub(crate) why: String,
}
