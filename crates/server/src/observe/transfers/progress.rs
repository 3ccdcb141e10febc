//! How far a transfer is and how fast it goes, in a few atomic numbers with one writer.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use underpass_engine::Mechanism;

/// How far a transfer is and how fast it goes.
///
/// The numbers are not consistent with each other to the byte, which nobody who looks on can tell.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes sent.
    bytes: AtomicU64,
    /// What moved the last of them: 0 for memory, or the mechanism's place in the list and 1.
    mechanism: AtomicU8,
    /// When the rate was measured last, in milliseconds since the start.
    measured_at: AtomicU64,
    /// The bytes at that time.
    measured_bytes: AtomicU64,
    /// Bytes a second; 0 if it was never measured.
    rate: AtomicU64,
}

/// The time over which a rate is measured: shorter ones jump, longer ones do not tell of a stall.
const WINDOW: u64 = 1_000;

impl Progress {
    /// Tells the bytes so far, what moved the last of them, and the time since the start.
    pub(super) fn set(&self, bytes: u64, mechanism: Option<Mechanism>, elapsed: Duration) {
        self.bytes.store(bytes, Relaxed);
        self.mechanism.store(mechanism.map_or(0, |mechanism| mechanism as u8 + 1), Relaxed);
        let (now, before) = (milliseconds(elapsed), self.measured_at.load(Relaxed));
        let window = now.saturating_sub(before);
        if window < WINDOW {
            return;
        }
        let measured = per_second(bytes.saturating_sub(self.measured_bytes.load(Relaxed)), window);
        // Half of the new and half of the old: calm, and right again after a few seconds.
        let rate = match self.rate.load(Relaxed) {
            0 => measured,
            old if window < 4 * WINDOW => old / 2 + measured / 2,
            _ => measured,
        };
        self.rate.store(rate, Relaxed);
        self.measured_bytes.store(bytes, Relaxed);
        self.measured_at.store(now, Relaxed);
    }

    /// Bytes sent.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// What moved the last of them.
    pub(super) fn mechanism(&self) -> &'static str {
        let place = usize::from(self.mechanism.load(Relaxed));
        place
            .checked_sub(1)
            .and_then(|place| Mechanism::ALL.get(place))
            .map_or("memory", |mechanism| mechanism.name())
    }

    /// Bytes a second, as seen this long after the start.
    ///
    /// A transfer that has stalled tells nothing any more, so who looks must see for himself that
    /// time goes by.
    pub(super) fn rate(&self, elapsed: Duration) -> u64 {
        let since = milliseconds(elapsed).saturating_sub(self.measured_at.load(Relaxed));
        let rate = self.rate.load(Relaxed);
        if rate > 0 && since < 2 * WINDOW {
            return rate;
        }
        per_second(self.bytes().saturating_sub(self.measured_bytes.load(Relaxed)), since)
    }
}

/// A duration in the unit of these numbers.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Bytes a second.
fn per_second(bytes: u64, milliseconds: u64) -> u64 {
    let rate = u128::from(bytes) * 1000 / u128::from(milliseconds.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}
