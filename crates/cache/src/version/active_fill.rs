//! A running fill of a version, from the point of view of its readers.

use std::time::{Duration, Instant};

use crate::pool::JobOwner;

/// A fill that runs or waits for a thread.
#[derive(Debug)]
pub(super) struct ActiveFill {
    pub(super) id: u64,
    /// The offset at which it began.
    pub(super) start: u64,
    pub(super) at: u64,
    /// The end of its range; `None` for everything up to the end of the body.
    pub(super) end: Option<u64>,
    /// The client for which it runs or waits.
    pub(super) owner: JobOwner,
    began: Instant,
}

impl ActiveFill {
    pub(super) fn new(id: u64, at: u64, end: Option<u64>, owner: JobOwner) -> Self {
        Self { id, start: at, at, end, owner, began: Instant::now() }
    }

    /// Returns whether it will bring a missing byte so soon that readers should wait for it, or is
    /// the only way to get the byte.
    pub(super) fn brings(&self, at: u64, has_one_fill: bool) -> bool {
        let is_ahead = at >= self.at && self.end.is_none_or(|end| at < end);
        is_ahead && (has_one_fill || at - self.at <= self.reach())
    }

    /// Returns how many bytes ahead of it a reader waits for it: as many as it brings in
    /// [`REACH_TIME`].
    fn reach(&self) -> u64 {
        let elapsed = self.began.elapsed().max(Duration::from_millis(1)).as_millis();
        let bytes = u128::from(self.at - self.start) * REACH_TIME.as_millis() / elapsed;
        u64::try_from(bytes).unwrap_or(u64::MAX).clamp(MIN_REACH, MAX_REACH)
    }
}

/// The maximum wait of a reader before a further request to the origin is preferred.
const REACH_TIME: Duration = Duration::from_millis(500);

/// A reader always waits for a fill that is at most this many bytes behind.
const MIN_REACH: u64 = 1 << 20;

/// A reader never waits for a fill that is more than this many bytes behind.
const MAX_REACH: u64 = 8 << 20;
