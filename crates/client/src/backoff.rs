//! The retry policy of failed requests, shared by `get`, `get -r` and `put`.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::error::ClientError;

/// A series of failed attempts.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    failures: u32,
    max: u32,
}

impl Backoff {
    /// Allows this many attempts after the first.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self { failures: 0, max }
    }

    /// Forgets earlier failures after progress.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Forgets earlier failures if `bytes` are enough to count as progress: attempts that move only
    /// a few bytes must not be retried for ever.
    pub fn progressed(&mut self, bytes: u64) {
        if bytes >= MIN_PROGRESS {
            self.reset();
        }
    }

    /// Returns how long to wait before the next attempt, at least `retry_after`; `None` if no
    /// attempts are left or the server asks for too long a wait.
    pub fn next(&mut self, retry_after: Option<Duration>) -> Option<Duration> {
        if self.failures >= self.max
            || retry_after.is_some_and(|retry_after| retry_after > MAX_RETRY_AFTER)
        {
            return None;
        }
        let wait = (FIRST_WAIT * 2_u32.saturating_pow(self.failures)).min(MAX_WAIT);
        self.failures += 1;
        // Jitter: clients that were cut off at the same moment must not all reconnect at once.
        let random = u32::from(RandomState::new().hash_one(0).to_ne_bytes()[0]);
        let wait = wait / 2 + wait * random / 510;
        Some(wait.max(retry_after.unwrap_or_default()))
    }
}

/// An error after which a request may be retried.
pub trait Retryable: From<ClientError> {
    /// Returns the request's own error; `None` if something else failed.
    fn of_request(&self) -> Option<&ClientError>;

    /// Returns whether a retry may succeed.
    fn may_pass(&self) -> bool {
        self.of_request().is_some_and(ClientError::is_temporary)
    }
}

impl Retryable for ClientError {
    fn of_request(&self) -> Option<&ClientError> {
        Some(self)
    }
}

impl Backoff {
    /// Waits before the next attempt.
    ///
    /// # Errors
    ///
    /// The error itself if a retry is pointless or no attempts are left: a server that has never
    /// answered and does not seem to exist is more likely misspelled than busy.
    /// [`ClientError::Cancelled`] as soon as one of the flags becomes true.
    pub fn wait<E: Retryable>(
        &mut self,
        error: E,
        has_answered: bool,
        cancel: &[&AtomicBool],
        report: impl FnOnce(&E, Duration),
    ) -> Result<(), E> {
        let request = error.of_request();
        let is_hopeless = !has_answered && request.is_some_and(ClientError::is_unreachable_host);
        if is_hopeless || !error.may_pass() {
            return Err(error);
        }
        let Some(after) = self.next(request.and_then(ClientError::retry_after)) else {
            return Err(error);
        };
        report(&error, after);
        if sleep(after, cancel) { Ok(()) } else { Err(ClientError::Cancelled.into()) }
    }
}

/// Sleeps for this time; returns `false` at once when one of the flags becomes true.
pub fn sleep(time: Duration, cancel: &[&AtomicBool]) -> bool {
    let until = Instant::now() + time;
    loop {
        if cancel.iter().any(|flag| flag.load(Ordering::Relaxed)) {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(POLL_INTERVAL));
    }
}

/// The minimum number of bytes that count as progress: more than an attempt that stalls by default
/// can have moved.
pub(crate) const MIN_PROGRESS: u64 = 1 << 10;

/// The wait before the second attempt.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The longest wait that the server has not asked for.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// The longest wait that a server may ask for; one that asks for more is not retried.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// The interval at which a wait checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_end() {
        let mut backoff = Backoff::new(8);
        let waits: Vec<_> = std::iter::from_fn(|| backoff.next(None)).collect();
        assert_eq!(waits.len(), 8);
        for (index, wait) in waits.iter().enumerate() {
            let full = (FIRST_WAIT * 2_u32.pow(u32::try_from(index).expect("small"))).min(MAX_WAIT);
            assert!((full / 2..=full).contains(wait), "{index}: {wait:?}");
        }
        backoff.reset();
        assert!(backoff.next(None).is_some_and(|wait| wait <= FIRST_WAIT));
    }

    #[test]
    fn the_server_may_ask_for_more_but_not_for_ever() {
        let mut backoff = Backoff::new(8);
        assert_eq!(backoff.next(Some(Duration::from_secs(30))), Some(Duration::from_secs(30)));
        assert_eq!(backoff.next(Some(Duration::from_secs(3600))), None);
        assert_eq!(Backoff::new(0).next(None), None);
    }

    #[test]
    fn a_few_bytes_of_each_attempt_are_no_progress() {
        let mut backoff = Backoff::new(1);
        assert!(backoff.next(None).is_some());
        backoff.progressed(MIN_PROGRESS - 1);
        assert_eq!(backoff.next(None), None);
        backoff.progressed(MIN_PROGRESS);
        assert!(backoff.next(None).is_some());
    }
}
