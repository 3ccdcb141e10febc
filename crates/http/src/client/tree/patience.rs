//! How often something that failed is tried again, and after which while.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::error::TreeError;
use super::{Job, Tell, TreeEvent};
use crate::client::ClientError;
use crate::client::patience::sleep;

/// What is left of the patience.
pub(super) struct Patience<'p> {
    tell: Tell<'p>,
    cancel: Option<&'p AtomicBool>,
    most: u32,
    failed: u32,
}

impl<'p> Patience<'p> {
    pub(super) fn new(job: &Job<'p, '_>) -> Self {
        Self { tell: job.tell, cancel: job.agent.cancel, most: job.wishes.retries, failed: 0 }
    }

    /// There was progress: failures count from now on.
    pub(super) fn renew(&mut self) {
        self.failed = 0;
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    ///
    /// The error itself, if another attempt makes no sense or there have been enough of them.
    pub(super) fn wait(&mut self, error: TreeError) -> Result<(), TreeError> {
        if !error.is_temporary() || self.failed >= self.most {
            return Err(error);
        }
        let mut after = FIRST * 2_u32.pow(self.failed.min(6));
        if let TreeError::Client(ClientError::Status { retry_after: Some(asked), .. }) = &error {
            after = after.max(*asked).min(LONGEST);
        }
        self.failed += 1;
        (self.tell)(&TreeEvent::Retrying { error: &error, after });
        match sleep(after, self.cancel.as_slice()) {
            true => Ok(()),
            false => Err(ClientError::Cancelled.into()),
        }
    }
}

/// The first while; each is twice as long as the one before.
const FIRST: Duration = Duration::from_millis(250);

/// The longest while, whatever a server asks for.
const LONGEST: Duration = Duration::from_secs(300);
