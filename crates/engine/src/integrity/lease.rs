//! A read lease on a file: while it is held, the kernel blocks processes that open it for writing.
//!
//! The kernel announces a broken lease to its holder by a signal, `SIGIO` by default, whose
//! default action ends the process. A library must not do that to its user, so the lease uses a
//! signal that is ignored by default, and then has no owner to receive it: the lease is polled
//! instead, before each step.

use std::fs;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::fstat;
use rustix::io::Errno;
use underpass_sys::{clear_lease_owner, has_read_lease, release_lease, take_read_lease};

use super::version::Version;
use super::writers::{counts_writers, reopen};

/// A read lease, on an open file description of its own: the caller's description keeps its
/// signals, and closing this one gives the lease back.
#[derive(Debug)]
pub(crate) struct Lease {
    description: OwnedFd,
    /// When the lease was last known to be whole. The kernel revokes it no earlier than
    /// `lease-break-time` after a writer arrives, and a writer cannot have arrived before this.
    last_whole: Instant,
    break_time: Duration,
    is_broken: bool,
}

/// The state of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// No process is waiting to write.
    Whole,
    /// A writer is waiting. There is still time to finish.
    Broken,
    /// A writer has waited so long that the kernel may let it proceed at any moment.
    Expired,
}

impl Lease {
    /// Takes a lease on the file, which must still be in the version whose length was promised.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the file is open for writing, `EACCES` if it belongs to another user and the
    /// process lacks `CAP_LEASE`, `EOPNOTSUPP` where a lease does not hold off every writer, and as
    /// open(2) for opening it once more.
    pub(crate) fn acquire(file: BorrowedFd<'_>, promised: Option<Version>) -> Result<Self, Errno> {
        let description = reopen(file)?;
        if !counts_writers(&description) {
            return Err(Errno::OPNOTSUPP);
        }
        let last_whole = Instant::now();
        // SIGURG is ignored by default. It can only be sent between the next two calls.
        take_read_lease(&description)?;
        clear_lease_owner(&description)?;
        let now = Version::from_stat(&fstat(&description)?);
        if promised.is_some_and(|promised| promised.differs_from(&now)) {
            return Err(Errno::STALE);
        }
        Ok(Self { description, last_whole, break_time: break_time(), is_broken: false })
    }

    /// Asks the kernel whether a writer waits.
    pub(crate) fn state(&mut self) -> LeaseState {
        let now = Instant::now();
        let is_held = has_read_lease(&self.description);
        if !self.is_broken && is_held {
            self.last_whole = now;
            return LeaseState::Whole;
        }
        self.is_broken = true;
        if now.duration_since(self.last_whole) < self.grace() {
            LeaseState::Broken
        } else {
            LeaseState::Expired
        }
    }

    /// Returns how long a transfer may continue after the lease was last known to be whole.
    fn grace(&self) -> Duration {
        self.break_time.saturating_sub(MARGIN).min(PATIENCE)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Closing the description gives the lease back, but a child process of the caller may
        // hold it open too. If this fails the lease is already gone.
        let _ = release_lease(&self.description);
    }
}

/// Returns how long the kernel blocks a writer (proc_sys_fs(5)); zero if that is unknown.
fn break_time() -> Duration {
    let text = fs::read_to_string("/proc/sys/fs/lease-break-time").unwrap_or_default();
    Duration::from_secs(text.trim().parse().unwrap_or(0))
}

/// The time that a transfer has to finish once a writer waits, even if the kernel allows more.
const PATIENCE: Duration = Duration::from_secs(5);

/// The kernel counts from the writer's call and in ticks; the transfer stops this much earlier.
const MARGIN: Duration = Duration::from_millis(500);
