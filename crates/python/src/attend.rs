//! Runs a transfer on a thread of its own, while the thread that called it attends to signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Ends transfers from another thread. One that has been cancelled stays so.
#[pyclass(frozen, module = "underpass")]
#[derive(Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

#[pymethods]
impl Cancel {
    /// Creates a token that is not cancelled.
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Cancels every transfer that was given this token, soon.
    fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    #[getter]
    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs `work` without the interpreter's lock and returns what it returns.
///
/// Meanwhile Python's handlers of signals run, if this is the thread that they run on. If one of
/// them raises, as that of Ctrl-C does, `work` is cancelled, and the exception is raised once it
/// has ended and has removed what it left.
///
/// # Errors
///
/// What a handler raised, or a `RuntimeError` if no thread can be started or `work` panicked.
pub(crate) fn attend<T: Send>(
    py: Python<'_>,
    token: Option<&Cancel>,
    work: impl FnOnce(&AtomicBool) -> T + Send,
) -> PyResult<T> {
    let cancel = token.map(|token| Arc::clone(&token.0)).unwrap_or_default();
    let cancel = &*cancel;
    let (send, mut outcome) = mpsc::channel();
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("underpass".to_owned());
        // The receiver outlives the thread.
        worker.spawn_scoped(scope, move || drop(send.send(work(cancel))))?;
        let mut raised = None;
        loop {
            let outcome = &mut outcome;
            match py.detach(move || outcome.recv_timeout(SIGNAL_INTERVAL)) {
                Ok(outcome) => return raised.map_or(Ok(outcome), Err),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(exception) = py.check_signals() {
                        cancel.store(true, Ordering::Relaxed);
                        raised.get_or_insert(exception);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("underpass panicked: see standard error"));
                }
            }
        }
    })
}

/// How often signals are looked for.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);
