//! A histogram of request durations, from a small file in the page cache to an image over a slow
//! line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The counts of durations.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// The number of durations up to each of [`BOUNDS`] and above the one before it; the last count
    /// is for those above all bounds.
    counts: [AtomicU64; BOUNDS.len() + 1],
    /// The sum in nanoseconds.
    sum: AtomicU64,
}

/// The upper bounds in milliseconds, and in seconds as Prometheus writes them.
pub(super) const BOUNDS: [(u64, &str); 15] = [
    (1, "0.001"),
    (2, "0.002"),
    (5, "0.005"),
    (10, "0.01"),
    (50, "0.05"),
    (100, "0.1"),
    (500, "0.5"),
    (1_000, "1"),
    (5_000, "5"),
    (10_000, "10"),
    (30_000, "30"),
    (60_000, "60"),
    (300_000, "300"),
    (900_000, "900"),
    (3_600_000, "3600"),
];

impl Histogram {
    /// Counts one duration.
    pub(super) fn observe(&self, duration: Duration) {
        // Nearly all durations are within the first bounds.
        let within = |&(bound, _): &(u64, &str)| duration <= Duration::from_millis(bound);
        let place = BOUNDS.iter().position(within).unwrap_or(BOUNDS.len());
        self.counts[place].fetch_add(1, Relaxed);
        self.sum.fetch_add(nanoseconds(duration), Relaxed);
    }

    /// Returns the counts up to each bound and above all; none includes those of a lower bound.
    pub(super) fn counts(&self) -> [u64; BOUNDS.len() + 1] {
        std::array::from_fn(|at| self.counts[at].load(Relaxed))
    }

    /// Returns the sum in nanoseconds.
    pub(super) fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }
}

/// Returns the nanoseconds of a duration, saturating after 584 years.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
