//! Repeats failed requests for a folder.

use std::sync::atomic::{AtomicBool, Ordering};

use super::error::TreeError;
use super::options::{Tell, TreeEvent};
use super::task::TreeFetch;
use crate::client::backoff::{Backoff, sleep};
use crate::client::error::ClientError;

/// The attempts of one request.
pub(super) struct Retry<'p> {
    tell: Tell<'p>,
    cancel: Option<&'p AtomicBool>,
    has_answered: &'p AtomicBool,
    backoff: Backoff,
}

impl<'p> Retry<'p> {
    pub(super) fn new(tree: &TreeFetch<'p, '_>) -> Self {
        Self {
            tell: tree.tell,
            cancel: tree.client.cancel,
            has_answered: tree.has_answered,
            backoff: Backoff::new(tree.options.retries),
        }
    }

    /// Forgets earlier failures, because there was progress.
    pub(super) fn renew(&mut self) {
        self.backoff.reset();
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    ///
    /// The error itself, if another attempt makes no sense or there have been enough of them. An
    /// address at which nothing has ever answered is more likely wrong than busy.
    pub(super) fn wait(&mut self, error: TreeError) -> Result<(), TreeError> {
        let TreeError::Client(cause) = &error else { return Err(error) };
        let is_hopeless = !self.has_answered.load(Ordering::Relaxed) && cause.is_nobody();
        if is_hopeless || !cause.is_temporary() {
            return Err(error);
        }
        let Some(after) = self.backoff.next(cause.retry_after()) else { return Err(error) };
        (self.tell)(&TreeEvent::Retrying { error: &error, after });
        match sleep(after, self.cancel.as_slice()) {
            true => Ok(()),
            false => Err(ClientError::Cancelled.into()),
        }
    }
}
