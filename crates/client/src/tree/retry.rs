//! Repeats failed requests for a folder.

use std::sync::atomic::{AtomicBool, Ordering};

use super::error::{Result, TreeError};
use super::options::{OnTreeEvent, TreeEvent};
use super::task::TreeFetch;
use crate::backoff::Backoff;

/// The attempts of one request.
pub(super) struct Retry<'p> {
    on_event: &'p OnTreeEvent<'p>,
    cancel: Option<&'p AtomicBool>,
    has_answered: &'p AtomicBool,
    backoff: Backoff,
}

impl<'p> Retry<'p> {
    pub(super) fn new(tree: &TreeFetch<'p, '_>) -> Self {
        Self {
            on_event: tree.on_event,
            cancel: tree.client.cancel,
            has_answered: tree.has_answered,
            backoff: Backoff::new(tree.options.retries),
        }
    }

    /// Forgets earlier failures if `bytes` are enough to count as progress.
    pub(super) fn progressed(&mut self, bytes: u64) {
        self.backoff.progressed(bytes);
    }

    /// Waits before the next attempt, or returns the error if no retry is left.
    pub(super) fn wait(&mut self, error: TreeError) -> Result<()> {
        let has_answered = self.has_answered.load(Ordering::Relaxed);
        self.backoff.wait(error, has_answered, self.cancel.as_slice(), |error, after| {
            (self.on_event)(&TreeEvent::Retrying { error, after });
        })
    }
}
