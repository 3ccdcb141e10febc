//! How often acknowledgements are looked for, which no event announces.

use std::time::{Duration, Instant};

/// How long to wait before acknowledgements are looked for again. Those of a
/// client that has not read for long are looked for rarely, because there may be thousands of them.
pub(crate) fn poll_interval(since: Instant) -> Duration {
    (since.elapsed() / 8).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);

const MAX_POLL_INTERVAL: Duration = Duration::from_millis(250);
