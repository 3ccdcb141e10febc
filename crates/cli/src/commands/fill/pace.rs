//! The pace that `--rate` sets.

use std::time::{Duration, Instant};

/// A pace in bytes per second. What was not used of it is made up for as far as [`CREDIT`].
pub(super) struct Pace {
    rate: u64,
    /// The time at which all bytes so far should have taken up to.
    due: Instant,
}

impl Pace {
    /// Starts at a time, with this number of bytes per second.
    pub(super) fn new(rate: u64, now: Instant) -> Self {
        Self { rate, due: now }
    }

    /// Counts bytes that have been fetched at a time.
    pub(super) fn add(&mut self, bytes: u64, now: Instant) {
        let earliest = now.checked_sub(CREDIT).unwrap_or(now);
        let time = Duration::from_secs_f64(bytes as f64 / self.rate.max(1) as f64);
        self.due = self.due.max(earliest) + time;
    }

    /// Returns how long to wait at a time before more is fetched.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }
}

/// The maximum time that is made up for: a node whose origin is slow for a while is not filled at
/// full speed after it.
const CREDIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_time_is_made_up_for_by_a_second_at_most() {
        let second = Duration::from_secs(1);
        let begun = Instant::now();
        let mut pace = Pace::new(100, begun);
        assert_eq!(pace.wait(begun), Duration::ZERO);
        pace.add(300, begun);
        assert_eq!(pace.wait(begun + second), 2 * second);
        // It has taken an hour since.
        let later = begun + 3600 * second;
        pace.add(100, later);
        assert_eq!(pace.wait(later), Duration::ZERO);
        pace.add(100, later);
        assert_eq!(pace.wait(later), second);
    }
}
