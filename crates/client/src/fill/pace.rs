//! The pace that `--rate` sets.

use std::time::{Duration, Instant};

/// A pace in bytes per second. It makes up for at most [`CREDIT`] of lost time.
pub(super) struct Pace {
    rate: u64,
    /// The earliest time at which all bytes so far may have been fetched.
    due: Instant,
}

impl Pace {
    /// Starts at a time, with this number of bytes per second.
    pub(super) fn new(rate: u64, now: Instant) -> Self {
        Self { rate, due: now }
    }

    /// Counts the bytes of a piece whose fetch began at a time.
    pub(super) fn add(&mut self, bytes: u64, begun: Instant) {
        let earliest = begun.checked_sub(CREDIT).unwrap_or(begun);
        let time = Duration::from_secs_f64(bytes as f64 / self.rate.max(1) as f64);
        self.due = self.due.max(earliest) + time;
    }

    /// Returns how long to wait from now on before more is fetched.
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
    fn the_pace_catches_up_by_one_second_at_most() {
        let second = Duration::from_secs(1);
        let begun = Instant::now();
        let mut pace = Pace::new(100, begun);
        assert_eq!(pace.wait(begun), Duration::ZERO);
        pace.add(300, begun);
        assert_eq!(pace.wait(begun + second), 2 * second);
        // A piece that took its time was no faster than it may be.
        assert_eq!(pace.wait(begun + 3 * second), Duration::ZERO);
        // The origin has stalled for an hour since.
        let later = begun + 3600 * second;
        pace.add(100, later);
        assert_eq!(pace.wait(later), Duration::ZERO);
        pace.add(100, later);
        assert_eq!(pace.wait(later), second);
    }
}
