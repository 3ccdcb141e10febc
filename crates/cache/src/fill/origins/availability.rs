//! Whether a server is asked, or skipped for a while because it has failed.

use std::time::{Duration, Instant};

use underpass_client::{ClientError, ConnectionError, NetworkAction};

use crate::error::{CacheError, CacheErrorKind};
use crate::key::KeyDigest;

/// The error if no origin answered, and the time to wait before the next attempt.
#[derive(Debug)]
pub(crate) struct OriginFailure {
    pub(crate) error: CacheError,
    pub(crate) retry_after: Option<Duration>,
}

impl<K: Into<CacheErrorKind>> From<K> for OriginFailure {
    fn from(kind: K) -> Self {
        Self { error: CacheError::from(kind), retry_after: None }
    }
}

/// What is known of the failures of a server since its last answer.
#[derive(Debug, Default)]
pub(super) struct Availability {
    failures: u32,
    /// The time until which it is skipped, and the reason.
    until: Option<(Instant, CacheErrorKind)>,
    /// The objects with which it was late, at most [`MAX_LATE`].
    late: Vec<KeyDigest>,
}

/// The object for which a server is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedObject<'k> {
    pub(super) digest: &'k KeyDigest,
    /// Whether the request continues a body.
    pub(super) is_resumed: bool,
    /// Whether no other server may have the object.
    pub(super) is_only: bool,
}

impl Availability {
    /// Returns whether a request may be sent now. After the time for which the server is skipped,
    /// one request is let through. `is_resumed` requests, which continue a body, always are.
    ///
    /// # Errors
    ///
    /// How long the server is skipped because it has failed, and the kind of failure.
    pub(super) fn check(&mut self, is_resumed: bool) -> Result<(), (Duration, CacheErrorKind)> {
        if let Some((until, why)) = self.until.filter(|_| !is_resumed) {
            let now = Instant::now();
            if now < until {
                return Err((until - now, why));
            }
            self.until = Some((now + wait(self.failures), why));
        }
        Ok(())
    }

    /// Records an error, and returns it with the time to wait before the next attempt.
    pub(super) fn failure(&mut self, error: ClientError, asked: AskedObject<'_>) -> OriginFailure {
        let wait = self.note_failure(&error, asked).unwrap_or(FIRST_WAIT);
        OriginFailure { error: error.into(), retry_after: Some(wait) }
    }

    /// Records an error; returns how long the server is skipped, if it is.
    pub(super) fn note_failure(
        &mut self,
        error: &ClientError,
        asked: AskedObject<'_>,
    ) -> Option<Duration> {
        if !self.has_failed(error, asked) {
            return None;
        }
        let wait = wait(self.failures);
        self.failures = (self.failures + 1).min(16);
        self.until = Some((Instant::now() + wait, error.into()));
        Some(wait)
    }

    /// Returns whether an error concerns the server rather than this object. Being late with a
    /// single object is no failure, unless another origin may have it. If the only server is late
    /// with several ones and answers nothing meanwhile, requests would occupy all threads for long.
    fn has_failed(&mut self, error: &ClientError, asked: AskedObject<'_>) -> bool {
        if !matches!(error, ClientError::TimedOut(_)) {
            return is_unreachable(error);
        }
        if self.late.len() < MAX_LATE && !self.late.contains(asked.digest) {
            self.late.push(*asked.digest);
        }
        // Requests that were sent before it was skipped tell nothing new.
        let is_skipped = self.until.is_some_and(|(until, _)| Instant::now() < until);
        !asked.is_only || (self.late.len() >= MAX_LATE && !is_skipped)
    }
}

/// Returns whether an error concerns the server rather than one object: it cannot be reached.
fn is_unreachable(error: &ClientError) -> bool {
    match error {
        ClientError::Connection(ConnectionError::Network { action, .. }) => {
            *action != NetworkAction::Receiving
        }
        ClientError::Connection(ConnectionError::Tls { .. }) => true,
        _ => false,
    }
}

/// Returns how long a server is skipped after this number of earlier failures.
fn wait(failures: u32) -> Duration {
    (FIRST_WAIT * 2_u32.saturating_pow(failures)).min(MAX_WAIT)
}

/// How long a server is skipped after its first failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The maximum time for which a server is skipped.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The number of objects with which the only server is late before it is skipped.
const MAX_LATE: usize = 4;
