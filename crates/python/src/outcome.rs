//! The result of a transfer as the Python package receives it.

use std::io;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde::Serialize;
use underpass_engine::hint::{Action, Hinted, Plain};
use underpass_receipt::Receipt;

/// The receipt of a transfer, and the failure if there was one.
#[derive(Debug)]
pub(crate) struct Outcome {
    receipt: String,
    failure: Option<(String, Option<String>)>,
    /// The status with which the server refused the request.
    status: Option<u16>,
}

impl Outcome {
    /// Creates the outcome of a transfer that succeeded.
    pub(crate) fn of(receipt: &impl Serialize) -> Self {
        // Receipts contain no maps with keys other than text.
        let receipt = serde_json::to_string(receipt).unwrap_or_default();
        Self { receipt, failure: None, status: None }
    }

    /// Creates the outcome of a failed transfer, with a line that says what failed, where and why.
    pub(crate) fn failed(receipt: &impl Serialize, line: String, error: &impl Hinted) -> Self {
        let hint = error.hint().map(|hint| hint.to_string());
        Self { failure: Some((line, hint)), ..Self::of(receipt) }
    }

    /// Creates the outcome of a transfer that did not start because the system refused `action`.
    pub(crate) fn not_begun(what: &str, action: &str, error: &io::Error) -> Self {
        let reason = format!("{action}: {}", Plain(error));
        let hint = Action::Other("opening").hint(error).map(|hint| hint.to_string());
        let receipt = Receipt { error: Some(reason.clone()), ..Receipt::default() };
        Self { failure: Some((format!("{what}: {reason}"), hint)), ..Self::of(&receipt) }
    }

    /// Creates the outcome of a transfer that left something out.
    pub(crate) fn incomplete(receipt: &impl Serialize, line: String) -> Self {
        Self { failure: Some((line, None)), ..Self::of(receipt) }
    }

    /// Adds the status with which the server refused the request, if it did.
    pub(crate) fn status(self, status: Option<u16>) -> Self {
        Self { status, ..self }
    }
}

/// `(receipt as JSON, message or None, hint or None, status or None)`
impl<'py> IntoPyObject<'py> for Outcome {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        let (message, hint) = self.failure.unzip();
        (self.receipt, message, hint.flatten(), self.status).into_pyobject(py)
    }
}
