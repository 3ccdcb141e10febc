//! How long to wait before the next attempt, and when to make no more.

use std::time::{Duration, Instant};

use crate::client::{Agent, ClientError};

/// How long to wait after so many failures in a row, of which `most` are borne; `None` to give up.
///
/// RFC 9110 10.2.3: a server that names a time is not to be asked sooner.
pub(super) fn wait(failures: u32, most: u32, asked: Option<Duration>) -> Option<Duration> {
    if failures > most || asked.is_some_and(|asked| asked > LONGEST_ASKED) {
        return None;
    }
    let doubled = FIRST.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    Some(asked.unwrap_or_default().max(doubled.min(LONGEST)))
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

/// Before the second attempt.
const FIRST: Duration = Duration::from_millis(500);

/// Before any attempt.
const LONGEST: Duration = Duration::from_secs(20);

/// Whoever asks for more does not want to be asked again in this run.
const LONGEST_ASKED: Duration = Duration::from_secs(600);

/// How often a wait looks whether it is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
