//! Limits the bytes per second of all connections together.
//!
//! Nothing is dropped or copied: a worker that has received too much sleeps, the kernel's receive
//! buffer, which is kept small, fills up, and TCP makes the server wait.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use underpass_engine::wait::lock;

use crate::backoff::sleep;

/// A limit of bytes per second, shared by connections: those of one download, or of several.
#[derive(Debug)]
pub struct RateLimit {
    rate: Option<u64>,
    /// The maximum idle time that is made up for.
    max_saved: Duration,
    /// The time at which the bytes so far would have arrived at the limit's rate.
    paid: Mutex<Option<Instant>>,
}

impl RateLimit {
    /// Creates a limit in bytes per second; `None` for no limit.
    #[must_use]
    pub fn new(rate: Option<u64>) -> Self {
        Self::with_max_saved(rate, MAX_SAVED)
    }

    /// Creates a limit that makes up for this much idle time at most.
    pub(crate) fn with_max_saved(rate: Option<u64>, max_saved: Duration) -> Self {
        Self { rate, max_saved, paid: Mutex::new(None) }
    }

    /// Returns the bytes of a sixteenth of a second, within limits, if there is a rate limit.
    pub(crate) fn burst(&self) -> Option<u64> {
        self.rate.map(|rate| (rate / 16).clamp(4 << 10, 1 << 20))
    }

    /// Returns the smaller of the requested bytes per system call and those that the limit allows.
    pub(crate) fn step(&self, step: Option<usize>) -> Option<usize> {
        let burst = self.burst().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        step.into_iter().chain(burst).min()
    }

    /// Returns the size of the receive buffer, if there is a limit: a larger one would fill faster
    /// than the rate.
    pub(crate) fn window(&self) -> Option<usize> {
        self.rate
            .map(|rate| usize::try_from((rate / 4).clamp(16 << 10, 4 << 20)).unwrap_or(4 << 20))
    }

    /// Accounts for received bytes, and sleeps until the limit allows them.
    pub(crate) fn spend(&self, bytes: u64, cancel: &[&AtomicBool]) {
        let now = Instant::now();
        sleep(self.charge(bytes, now).saturating_duration_since(now), cancel);
    }

    /// Accounts for bytes that were waited for since `since`, and returns when the limit allows them.
    pub(crate) fn charge(&self, bytes: u64, since: Instant) -> Instant {
        let Some(rate) = self.rate else { return since };
        let mut paid = lock(&self.paid);
        let earliest = since.checked_sub(self.max_saved).unwrap_or(since);
        let from = paid.map_or(since, |paid| paid.max(earliest));
        let cost = Duration::try_from_secs_f64(bytes as f64 / rate.max(1) as f64);
        *paid.insert(from + cost.map_or(MAX_COST, |cost| cost.min(MAX_COST)))
    }
}

/// The idle time that downloads make up for at most.
const MAX_SAVED: Duration = Duration::from_millis(200);

/// The maximum time that one call may cost, to bound the arithmetic.
const MAX_COST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_above_the_rate_have_to_wait() {
        let rate_limit = RateLimit::new(Some(1000));
        let started = Instant::now();
        (0..3).for_each(|_| rate_limit.spend(50, &[]));
        assert!(started.elapsed() >= Duration::from_millis(150));
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let rate_limit = RateLimit::new(None);
        rate_limit.spend(u64::MAX, &[]);
        assert_eq!(rate_limit.burst(), None);
    }

    #[test]
    fn idle_time_is_made_up_for_within_a_bound() {
        let second = Duration::from_secs(1);
        let begun = Instant::now();
        let limit = RateLimit::with_max_saved(Some(100), second);
        assert_eq!(limit.charge(300, begun), begun + 3 * second);
        // A stall of an hour.
        let later = begun + 3_600 * second;
        assert_eq!([100, 100].map(|bytes| limit.charge(bytes, later)), [later, later + second]);
        assert_eq!(limit.charge(u64::MAX, later), later + second + MAX_COST);
    }
}
