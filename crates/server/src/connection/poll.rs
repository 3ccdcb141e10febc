//! The interval of checks for acknowledgements, which no event announces.

use std::time::{Duration, Instant};

/// Returns the time until the next check for acknowledgements. Clients that have not read for long
/// are checked rarely, because there may be thousands of them.
pub(crate) fn poll_interval(since: Instant) -> Duration {
    (since.elapsed() / 8).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);

const MAX_POLL_INTERVAL: Duration = Duration::from_millis(250);
