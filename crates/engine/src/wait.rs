//! Waiting for descriptors, with a deadline and a flag that ends the wait, and for locks.
//!
//! A signal handler can set a flag but cannot wake a particular thread, so a wait that can be
//! cancelled checks its flag every [`POLL_INTERVAL`].

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// The time limit of a wait, and the flag that cancels it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits<'a> {
    /// When the wait times out; `None` for never.
    pub deadline: Option<Instant>,
    /// The flag that cancels the wait once it is true.
    pub cancel: Option<&'a AtomicBool>,
}

impl<'a> Limits<'a> {
    /// Creates limits that end at the deadline, or when the flag becomes true; both are optional.
    #[must_use]
    pub const fn new(deadline: Option<Instant>, cancel: Option<&'a AtomicBool>) -> Self {
        Self { deadline, cancel }
    }

    /// Creates limits that end `timeout` after `started`, or when the flag becomes true; both are
    /// optional.
    #[must_use]
    pub fn since(
        started: Instant,
        timeout: Option<Duration>,
        cancel: Option<&'a AtomicBool>,
    ) -> Self {
        // A deadline that the clock cannot represent counts as none.
        Self { deadline: timeout.and_then(|timeout| started.checked_add(timeout)), cancel }
    }

    /// Returns these limits with the earlier of their own deadline and this one.
    #[must_use]
    pub fn no_later_than(self, deadline: Option<Instant>) -> Self {
        Self { deadline: self.deadline.into_iter().chain(deadline).min(), ..self }
    }

    /// Returns the time that is left; `None` if there is no deadline.
    ///
    /// # Errors
    ///
    /// [`WaitError`] if the flag is true or no time is left.
    pub fn check(&self) -> Result<Option<Duration>, WaitError> {
        if self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            return Err(WaitError::Cancelled);
        }
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) { Err(WaitError::TimedOut) } else { Ok(left) }
    }

    /// Returns how long the caller may wait by other means before it checks again.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn moment(&self) -> Result<Option<Duration>, WaitError> {
        let left = self.check()?;
        Ok(left.into_iter().chain(self.cancel.map(|_| POLL_INTERVAL)).min())
    }

    /// Waits once for one of these ends, and returns whether one is ready. An interruption, and a
    /// flag that has to be checked again, count as ready: the caller tries again.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check), before waiting.
    pub fn poll(&self, ends: &mut [PollFd<'_>]) -> Result<bool, WaitError> {
        Ok(poll(ends, self.moment()?))
    }

    /// Waits until this end is ready.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn until_ready(&self, end: impl AsFd, flags: PollFlags) -> Result<(), WaitError> {
        while !self.poll(&mut [PollFd::new(&end, flags)])? {}
        Ok(())
    }
}

/// Detects a peer that moves too few bytes while the caller waits for it. Without a minimum, a byte
/// now and then would keep the caller waiting forever.
///
/// Only time spent waiting for the peer counts, not time in which this side is busy or holds the
/// peer back.
#[derive(Clone, Copy, Debug)]
pub struct StallDetector {
    timeout: Option<Duration>,
    /// The bytes that have to move before the peer has been waited for as long as the timeout.
    needed: u64,
    moved: u64,
    waited: Duration,
}

impl StallDetector {
    /// Requires `min_rate` bytes per second on average over the timeout, and at least one byte.
    #[must_use]
    pub fn new(timeout: Option<Duration>, min_rate: u64) -> Self {
        let needed = u128::from(min_rate) * timeout.unwrap_or_default().as_millis() / 1000;
        let needed = u64::try_from(needed).unwrap_or(u64::MAX).max(1);
        Self { timeout, needed, moved: 0, waited: Duration::ZERO }
    }

    /// Counts bytes that have moved; enough of them begin another period.
    pub fn moved(&mut self, bytes: u64) {
        self.moved = self.moved.saturating_add(bytes);
        if self.moved >= self.needed {
            (self.moved, self.waited) = (0, Duration::ZERO);
        }
    }

    /// Counts time in which the peer was waited for.
    pub fn waited(&mut self, time: Duration) {
        self.waited = self.waited.saturating_add(time);
    }

    /// Returns how much longer the peer may be waited for, unless more moves; `None` for any time.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.timeout.map(|timeout| timeout.saturating_sub(self.waited))
    }

    /// Returns how long to wait until the next count, for progress that no event announces.
    #[must_use]
    pub(crate) fn limit(&self) -> Option<Duration> {
        Some(self.left()?.min(self.timeout? / COUNTS_PER_TIMEOUT))
    }

    /// Returns the timeout if the peer has moved too little during it.
    #[must_use]
    pub fn stalled(&self) -> Option<Duration> {
        self.timeout.filter(|_| self.left() == Some(Duration::ZERO))
    }
}

/// Calls poll(2), without a limit if `timeout` is `None`, and returns whether an end is ready. A
/// failure is ignored: the next operation on the end returns its error.
pub fn poll(ends: &mut [PollFd<'_>], timeout: Option<Duration>) -> bool {
    let limit = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match rustix::event::poll(ends, limit.as_ref()) {
        Ok(ready) => ready > 0,
        Err(Errno::INTR) => false,
        // The kernel lacks memory: callers try again, and must not do so in a busy loop.
        Err(_) => {
            thread::sleep(timeout.map_or(FAILED_POLL_WAIT, |limit| limit.min(FAILED_POLL_WAIT)));
            false
        }
    }
}

/// Locks even if another thread has panicked: no thread leaves the guarded value half changed.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoison(mutex.lock())
}

/// Returns the guard even if another thread has panicked.
pub fn unpoison<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// The reason why a wait ended with nothing ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// The flag became true.
    Cancelled,
    /// No time is left.
    TimedOut,
}

impl From<WaitError> for Errno {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Cancelled => Self::INTR,
            WaitError::TimedOut => Self::TIMEDOUT,
        }
    }
}

impl From<WaitError> for std::io::Error {
    fn from(error: WaitError) -> Self {
        Errno::from(error).into()
    }
}

/// The bytes per second that a peer has to move on average over a timeout. Even a modem link shared by
/// dozens of connections is faster.
pub const MIN_RATE: u64 = 10;

/// The number of counts of progress before a peer counts as stalled.
const COUNTS_PER_TIMEOUT: u32 = 8;

/// The time until poll(2) is called again after a failure.
const FAILED_POLL_WAIT: Duration = Duration::from_millis(10);

/// The interval at which a wait checks its flag.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_wait_ends_when_an_end_is_ready() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let limits = Limits::since(Instant::now(), Some(Duration::from_secs(60)), None);
        let write = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            writer.write_all(b"x").unwrap();
        });
        assert_eq!(limits.until_ready(&reader, PollFlags::IN), Ok(()));
        write.join().unwrap();
    }

    #[test]
    fn a_wait_ends_by_its_deadline_or_its_flag() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let short = Limits::since(Instant::now(), Some(Duration::from_millis(20)), None);
        assert_eq!(short.until_ready(&reader, PollFlags::IN), Err(WaitError::TimedOut));
        let flag = AtomicBool::new(false);
        let limits = Limits::new(None, Some(&flag));
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                flag.store(true, Ordering::Relaxed);
            });
            assert_eq!(limits.until_ready(&reader, PollFlags::IN), Err(WaitError::Cancelled));
        });
        // Without a flag and a deadline the wait may last forever.
        assert_eq!(Limits::default().moment(), Ok(None));
    }

    #[test]
    fn a_drip_of_bytes_does_not_keep_a_wait_alive() {
        let second = Duration::from_secs(1);
        let mut stall = StallDetector::new(Some(60 * second), MIN_RATE);
        for _ in 0..59 {
            stall.moved(1);
            stall.waited(second);
        }
        assert_eq!((stall.left(), stall.stalled()), (Some(second), None));
        stall.waited(second);
        assert_eq!(stall.stalled(), Some(60 * second));
        // A modem that shares its link among the connections of a download is fast enough, and a
        // packet in each period is, too.
        let mut stall = StallDetector::new(Some(60 * second), MIN_RATE);
        for _ in 0..10 {
            stall.waited(59 * second);
            stall.moved(600);
            assert_eq!(stall.left(), Some(60 * second));
        }
    }

    #[test]
    fn without_a_least_rate_each_byte_begins_another_period() {
        let second = Duration::from_secs(1);
        let mut stall = StallDetector::new(Some(2 * second), 0);
        for _ in 0..10 {
            stall.waited(second);
            assert_eq!(stall.stalled(), None);
            stall.moved(1);
        }
        let mut endless = StallDetector::new(None, MIN_RATE);
        endless.waited(Duration::MAX);
        assert_eq!((endless.left(), endless.stalled()), (None, None));
    }
}
