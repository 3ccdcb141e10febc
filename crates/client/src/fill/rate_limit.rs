//! The rate limit that `--rate` sets.

use std::time::{Duration, Instant};

/// A rate limit in bytes per second. Unlike that of downloads, it counts the time that a piece took,
/// and makes up for at most [`CREDIT`] of lost time.
pub(super) struct FillRateLimit {
    rate: u64,
    /// The earliest time at which all bytes so far may have been fetched.
    due: Instant,
}

impl FillRateLimit {
    /// Starts at `now` with a rate in bytes per second.
    pub(super) fn new(rate: u64, now: Instant) -> Self {
        Self { rate, due: now }
    }

    /// Counts the bytes of a piece whose fetch began at `begun`.
    pub(super) fn add(&mut self, bytes: u64, begun: Instant) {
        let earliest = begun.checked_sub(CREDIT).unwrap_or(begun);
        let time = Duration::from_secs_f64(bytes as f64 / self.rate.max(1) as f64);
        self.due = self.due.max(earliest) + time;
    }

    /// Returns how long to wait before more is fetched.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }
}

/// The maximum time that is made up for: after its origin was slow for a while, a node is not
/// filled at full speed.
const CREDIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_catches_up_by_one_second_at_most() {
        let second = Duration::from_secs(1);
        let begun = Instant::now();
        let mut limit = FillRateLimit::new(100, begun);
        assert_eq!(limit.wait(begun), Duration::ZERO);
        limit.add(300, begun);
        assert_eq!(limit.wait(begun + second), 2 * second);
        // A piece that took long enough needs no further wait.
        assert_eq!(limit.wait(begun + 3 * second), Duration::ZERO);
        // The origin has stalled for an hour since.
        let later = begun + 3600 * second;
        limit.add(100, later);
        assert_eq!(limit.wait(later), Duration::ZERO);
        limit.add(100, later);
        assert_eq!(limit.wait(later), second);
    }
}
