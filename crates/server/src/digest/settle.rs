//! Waits before a file is read, so that its version reveals every later change.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{SeekFrom, seek};
use underpass_engine::{Version, since_1970};

/// Waits until any further write to a file changes its times.
///
/// Two writes within one tick of the kernel's clock leave the same times. And write(2) updates the
/// times before the bytes; SEEK_DATA waits for the lock that it holds.
pub(crate) fn wait_for_writes(file: &OwnedFd, version: &Version) {
    let until = UNIX_EPOCH + since_1970(version.changed()) + MAX_CLOCK_TICK;
    if let Ok(left) = until.duration_since(SystemTime::now()) {
        // The wait is bounded in case the clock was set back.
        thread::sleep(left.min(MAX_CLOCK_TICK));
    }
    // At the last byte there is nothing to search; the result does not matter.
    let _ = seek(file, SeekFrom::Data(version.size().saturating_sub(1)));
}

/// A time longer than any tick of the kernel's clock.
pub(crate) const MAX_CLOCK_TICK: Duration = Duration::from_millis(25);
