//! Runs a transfer on a separate thread, while the calling thread handles signals and reports the
//! progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Cancels transfers from another thread. A cancelled token stays cancelled.
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

    /// Returns whether it was cancelled.
    #[getter]
    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The progress of a transfer, set by its thread.
#[derive(Debug, Default)]
pub(crate) struct TransferProgress {
    done: AtomicU64,
    /// The total in bytes plus one; 0 while it is unknown.
    total: AtomicU64,
}

impl TransferProgress {
    /// Sets the bytes that are done, and the total if known.
    pub(crate) fn set(&self, done: u64, total: Option<u64>) {
        self.total.store(total.map_or(0, |total| total.saturating_add(1)), Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// Returns the bytes that are done, and the total if known.
    pub(crate) fn get(&self) -> (u64, Option<u64>) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed).checked_sub(1))
    }
}

/// The Python callbacks during a transfer.
#[derive(Debug, Default)]
pub(crate) struct Callbacks<'a> {
    pub(crate) cancel: Option<&'a Cancel>,
    /// Called with the bytes that are done and the total or `None`, whenever they have changed.
    pub(crate) progress: Option<&'a Py<PyAny>>,
}

/// Runs `work` without the interpreter's lock and returns its result.
///
/// Meanwhile Python's signal handlers run, if this is the thread that runs them. If one of them
/// raises, as the one for Ctrl-C does, `work` is cancelled, and the exception is raised once it has
/// ended and cleaned up. The same happens if the progress callback raises; it is called with the
/// result of `position`. Other transfers with the same token go on.
///
/// # Errors
///
/// The exception of a handler or the callback, or a `RuntimeError` if no thread can be started or
/// `work` panicked.
pub(crate) fn run_with<T: Send>(
    py: Python<'_>,
    callbacks: &Callbacks<'_>,
    position: &(dyn Fn() -> (u64, Option<u64>) + Sync),
    work: impl FnOnce(&AtomicBool) -> T + Send,
) -> PyResult<T> {
    let is_cancelled = || callbacks.cancel.is_some_and(Cancel::cancelled);
    let cancel = &AtomicBool::new(is_cancelled());
    let (send, mut outcome) = mpsc::channel();
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("underpass".to_owned());
        // The receiver outlives the thread.
        worker.spawn_scoped(scope, move || drop(send.send(work(cancel))))?;
        let (mut raised, mut reported) = (None, None);
        let mut report = || {
            let (Some(callback), now) = (callbacks.progress, position()) else { return Ok(()) };
            if reported.replace(now) != Some(now) {
                callback.call1(py, now)?;
            }
            Ok(())
        };
        loop {
            let outcome = &mut outcome;
            match py.detach(move || outcome.recv_timeout(SIGNAL_INTERVAL)) {
                Ok(outcome) => {
                    return match raised {
                        Some(exception) => Err(exception),
                        None => report().map(|()| outcome),
                    };
                }
                Err(RecvTimeoutError::Timeout) => {
                    cancel.fetch_or(is_cancelled(), Ordering::Relaxed);
                    if raised.is_none()
                        && let Err(exception) = py.check_signals().and_then(|()| report())
                    {
                        cancel.store(true, Ordering::Relaxed);
                        raised = Some(exception);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("underpass panicked: see standard error"));
                }
            }
        }
    })
}

/// The interval of checking for signals and reporting progress.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);
