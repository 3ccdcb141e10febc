//! The progress and rate of a transfer, in a few atomic numbers with one writer.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use underpass_engine::Mechanism;

/// The progress and rate of a transfer.
///
/// The numbers may be slightly inconsistent with each other, which no reader can notice.
#[derive(Debug, Default)]
pub(super) struct TransferState {
    /// The bytes sent.
    bytes: AtomicU64,
    /// The mechanism that moved the last bytes: 0 for memory, or its position in the list plus 1.
    mechanism: AtomicU8,
    /// The time of the last measurement of the rate, in milliseconds since the start.
    measured_at: AtomicU64,
    /// The bytes at that time.
    measured_bytes: AtomicU64,
    /// The rate in bytes per second; 0 if it was never measured.
    rate: AtomicU64,
}

/// The time to measure a rate, in ms: a shorter one fluctuates, a longer one hides a stall.
const WINDOW: u64 = 1_000;

impl TransferState {
    /// Reports the bytes so far, the mechanism that moved the last of them, and the time since the
    /// start.
    pub(super) fn set(&self, bytes: u64, mechanism: Option<Mechanism>, elapsed: Duration) {
        self.bytes.store(bytes, Relaxed);
        self.mechanism.store(mechanism.map_or(0, |mechanism| mechanism as u8 + 1), Relaxed);
        let (now, before) = (milliseconds(elapsed), self.measured_at.load(Relaxed));
        let window = now.saturating_sub(before);
        if window < WINDOW {
            return;
        }
        let measured = per_second(bytes.saturating_sub(self.measured_bytes.load(Relaxed)), window);
        // The average of new and old values is smooth, and right again after a few seconds.
        let rate = match self.rate.load(Relaxed) {
            0 => measured,
            old if window < 4 * WINDOW => old / 2 + measured / 2,
            _ => measured,
        };
        self.rate.store(rate, Relaxed);
        self.measured_bytes.store(bytes, Relaxed);
        self.measured_at.store(now, Relaxed);
    }

    /// Returns the bytes sent.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns the name of the mechanism that moved the last bytes.
    pub(super) fn mechanism(&self) -> &'static str {
        let place = usize::from(self.mechanism.load(Relaxed));
        place
            .checked_sub(1)
            .and_then(|place| Mechanism::ALL.get(place))
            .map_or("memory", |mechanism| mechanism.name())
    }

    /// Returns the rate in bytes per second, as seen this long after the start.
    ///
    /// A stalled transfer no longer reports, so the reader must take the passing time into account.
    pub(super) fn rate(&self, elapsed: Duration) -> u64 {
        let since = milliseconds(elapsed).saturating_sub(self.measured_at.load(Relaxed));
        let rate = self.rate.load(Relaxed);
        if rate > 0 && since < 2 * WINDOW {
            return rate;
        }
        per_second(self.bytes().saturating_sub(self.measured_bytes.load(Relaxed)), since)
    }
}

/// Returns a duration in milliseconds.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns bytes per second.
fn per_second(bytes: u64, milliseconds: u64) -> u64 {
    let rate = u128::from(bytes) * 1000 / u128::from(milliseconds.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}
