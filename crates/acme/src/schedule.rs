//! When certificates are renewed and failed attempts repeated.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::{Duration, SystemTime};

/// Returns when to renew a certificate: after two thirds of its lifetime, plus up to a thirtieth of
/// it, so that servers that started together do not renew together.
pub(crate) fn renewal(validity: &Range<SystemTime>) -> SystemTime {
    let lifetime = lifetime(validity);
    validity.start + lifetime * 2 / 3 + lifetime.mul_f64(random() / 30.0)
}

/// Returns the lifetime of a certificate.
pub(crate) fn lifetime(validity: &Range<SystemTime>) -> Duration {
    validity.end.duration_since(validity.start).unwrap_or_default()
}

/// The kind of failure to obtain a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The certificate authority refused. Retries are rare, because it counts failures.
    Refused,
    /// The certificate authority has counted no failure, for example because it was unreachable.
    Uncounted,
}

/// Returns how long to wait after this number of consecutive failures.
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

/// The first and the longest wait after a refusal. They result in five failures in the first hour,
/// which is what Let's Encrypt allows.
const REFUSED: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(6 * 3600));

/// The first and the longest wait if the certificate authority has counted no failure.
const UNCOUNTED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));

/// The longest wait that a certificate authority can request.
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
    fn waits_grow_up_to_a_limit_and_respect_retry_after() {
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
