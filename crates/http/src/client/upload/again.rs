//! What is tried again, and when.

use std::time::{Duration, Instant};

use crate::client::{Agent, ClientError};

/// What is tried again, and when.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// Failures in a row, without a byte between them, after which it is given up.
    pub most: u32,
    /// The wait before the first; each further one is twice as long.
    pub first: Duration,
    /// No wait is longer, whatever the server asks for.
    pub longest: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { most: 5, first: Duration::from_millis(500), longest: Duration::from_secs(60) }
    }
}

impl Retries {
    /// How long to wait before the next attempt after `failures` in a row; `None` to give up.
    pub(super) fn wait(&self, failures: u32, asked: Option<Duration>) -> Option<Duration> {
        if failures > self.most {
            return None;
        }
        let doubled = self.first * 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
        // RFC 9110 10.2.3: a server that names a time is not to be asked sooner.
        let wait = asked.unwrap_or_default().max(doubled);
        match asked.is_some_and(|asked| asked > self.longest) {
            true => None,
            false => Some(wait.min(self.longest)),
        }
    }
}

/// Waits; fails if nobody wants it any more.
pub(super) fn pause(agent: &Agent<'_>, wait: Duration) -> Result<(), ClientError> {
    let until = Instant::now() + wait;
    loop {
        if agent.is_cancelled() {
            return Err(ClientError::Cancelled);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(LOOK_INTERVAL));
    }
}

/// How often a wait looks whether it is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_heed_the_server() {
        let seconds = Duration::from_secs;
        let retries = Retries { most: 4, first: seconds(1), longest: seconds(5) };
        let waits: Vec<_> = (1..=5).map(|failures| retries.wait(failures, None)).collect();
        assert_eq!(
            waits,
            [1, 2, 4, 5].map(|s| Some(seconds(s))).into_iter().chain([None]).collect::<Vec<_>>()
        );
        assert_eq!(retries.wait(1, Some(seconds(3))), Some(seconds(3)));
        assert_eq!(retries.wait(1, Some(seconds(6))), None, "longer than anybody waits");
    }
}
