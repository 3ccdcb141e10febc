//! Takes no more bytes a second than is wished, from all connections together.
//!
//! Nothing is dropped and nothing copied: whoever has taken too much sleeps, the kernel's receive
//! buffer, which is kept small, fills up, and TCP makes the server wait.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::client::backoff::sleep;

/// The limit, and how far it is used.
#[derive(Debug)]
pub(super) struct RateLimit {
    rate: Option<u64>,
    /// When the bytes taken so far would have come at the rate wished for.
    paid: Mutex<Option<Instant>>,
}

impl RateLimit {
    /// So many bytes a second, if there is a limit.
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self { rate, paid: Mutex::new(None) }
    }

    /// Bytes that are worth a short moment, if there is a limit.
    pub(super) fn portion(&self) -> Option<u64> {
        self.rate.map(|rate| (rate / 16).clamp(4 << 10, 1 << 20))
    }

    /// How much may wait in the kernel, if there is a limit: more would come faster than wished.
    pub(super) fn window(&self) -> Option<usize> {
        self.rate
            .map(|rate| usize::try_from((rate / 4).clamp(16 << 10, 4 << 20)).unwrap_or(4 << 20))
    }

    /// Accounts for so many bytes, and sleeps until they may be there.
    pub(super) fn spend(&self, bytes: u64, cancel: &[&AtomicBool]) {
        let Some(rate) = self.rate else { return };
        let now = Instant::now();
        let until = {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            // A pause saves nothing up beyond a moment.
            let from = paid.map_or(now, |paid| paid.max(now.checked_sub(MAX_SAVED).unwrap_or(now)));
            let cost = Duration::try_from_secs_f64(bytes as f64 / rate as f64);
            *paid.insert(from + cost.unwrap_or(Duration::MAX / 4).min(MAX_COST))
        };
        sleep(until.saturating_duration_since(now), cancel);
    }
}

/// How much of the time in which nothing came may be made up for.
const MAX_SAVED: Duration = Duration::from_millis(200);

/// No portion takes longer; a bound for the arithmetic.
const MAX_COST: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_too_early_has_to_wait() {
        let rate_limit = RateLimit::new(Some(1000));
        let started = Instant::now();
        (0..3).for_each(|_| rate_limit.spend(50, &[]));
        assert!(started.elapsed() >= Duration::from_millis(150));
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let rate_limit = RateLimit::new(None);
        rate_limit.spend(u64::MAX, &[]);
        assert_eq!(rate_limit.portion(), None);
    }
}
