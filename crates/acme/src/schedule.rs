//! The times at which certificates are renewed and failed attempts repeated.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::{Duration, SystemTime};

/// Returns when a certificate is to be renewed: after two thirds of its lifetime, and up to a
/// thirtieth of it later, so that servers that began together do not ask together.
pub(crate) fn renewal(validity: &Range<SystemTime>) -> SystemTime {
    let lifetime = lifetime(validity);
    validity.start + lifetime * 2 / 3 + lifetime.mul_f64(random() / 30.0)
}

/// Returns the lifetime of a certificate.
pub(crate) fn lifetime(validity: &Range<SystemTime>) -> Duration {
    validity.end.duration_since(validity.start).unwrap_or_default()
}

/// Why no certificate came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The authority has refused. It is asked rarely, because it counts failures.
    Refused,
    /// The authority has counted no failure, such as when it could not be reached.
    Uncounted,
}

/// Returns how long to wait after this number of failures in a row.
pub(crate) fn wait(failures: u32, kind: FailureKind, retry_after: Option<Duration>) -> Duration {
    let (first, max) = match kind {
        FailureKind::Refused => REFUSED,
        FailureKind::Uncounted => UNCOUNTED,
    };
    let wait = first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(max);
    let wait = wait.mul_f64(1.0 + random() / 5.0);
    wait.max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER))
}

/// Returns a number from 0 to 1.
fn random() -> f64 {
    let bits = u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or_default();
    f64::from(bits) / f64::from(u32::MAX)
}

/// The first and the longest wait after a refusal. With these, the first hour has five failures,
/// which is what Let's Encrypt allows.
const REFUSED: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(6 * 3600));

/// The first and the longest wait if the authority has counted no failure.
const UNCOUNTED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));

/// The longest wait that an authority can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_lifetime() {
        let start = SystemTime::UNIX_EPOCH;
        let day = Duration::from_secs(24 * 3600);
        for _ in 0..100 {
            let at = renewal(&(start..start + 90 * day)).duration_since(start).unwrap_or_default();
            assert!((60 * day..=63 * day).contains(&at), "{at:?}");
        }
    }

    #[test]
    fn waits_grow_up_to_a_bound_and_heed_the_authority() {
        let seconds = Duration::from_secs;
        for (failures, kind, retry_after, expected) in [
            (1, FailureKind::Refused, None, seconds(300)),
            (2, FailureKind::Refused, None, seconds(600)),
            (99, FailureKind::Refused, None, seconds(6 * 3600)),
            (1, FailureKind::Uncounted, None, seconds(5)),
            (99, FailureKind::Uncounted, None, seconds(3600)),
            (1, FailureKind::Uncounted, Some(seconds(4000)), seconds(4000)),
            (1, FailureKind::Refused, Some(Duration::MAX), seconds(24 * 3600)),
        ] {
            let wait = wait(failures, kind, retry_after);
            assert!((expected..=expected.mul_f64(1.2)).contains(&wait), "{wait:?}");
        }
    }
}
