//! What a piece of work cost the calling thread, from getrusage(2), and a process, by its clock.

use std::io;
use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::sys::Spender;

/// Processor time, context switches and page faults of the calling thread, or of children.
///
/// Work that the kernel does elsewhere on the thread's behalf, in soft interrupts and at the
/// peer, is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user space.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// Context switches because the thread waited.
    pub voluntary_switches: u64,
    /// Context switches because its time was up.
    pub involuntary_switches: u64,
    /// Page faults served without a disk.
    pub minor_faults: u64,
    /// Page faults that had to wait for a disk.
    pub major_faults: u64,
}

impl Usage {
    /// What the calling thread has spent since it began.
    #[must_use]
    pub fn of_this_thread() -> Self {
        // getrusage(2) knows nothing of the time since the last tick of the scheduler, some 4 ms.
        // Asking for the thread's clock brings the same account up to date.
        let _ = clock_gettime(ClockId::ThreadCPUTime);
        crate::sys::usage(Spender::Thread)
    }

    /// What the children of this process that were waited for have spent, and all that they have
    /// waited for themselves.
    #[must_use]
    pub fn of_ended_children() -> Self {
        crate::sys::usage(Spender::Children)
    }
}

/// Processor time, user and system together, that a process has spent since it began: that of all
/// of its threads, also of those that have ended. A process that has ended still has it until its
/// parent has waited for it.
///
/// # Errors
///
/// If there is no such process.
pub fn processor_time(pid: u32) -> io::Result<Duration> {
    Ok(crate::sys::process_time(pid)?)
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
            minor_faults: self.minor_faults + other.minor_faults,
            major_faults: self.major_faults + other.major_faults,
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            voluntary_switches: self.voluntary_switches - earlier.voluntary_switches,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
            minor_faults: self.minor_faults - earlier.minor_faults,
            major_faults: self.major_faults - earlier.major_faults,
        }
    }
}
