//! Resource usage of a thread (getrusage(2)) and of a process (its CPU clock), the memory that the
//! allocator keeps, and the priority of a thread (sched_setattr(2)).

use std::ffi::c_int;
use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::last_errno;

/// Processor time, context switches and page faults of the calling thread, or of children.
///
/// It excludes work that the kernel does elsewhere on the thread's behalf, in soft interrupts and
/// at the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user space (`ru_utime`).
    pub user: Duration,
    /// Processor time in the kernel (`ru_stime`).
    pub system: Duration,
    /// The number of context switches because the thread waited (`ru_nvcsw`).
    pub voluntary_switches: u64,
    /// The number of context switches because its time was up (`ru_nivcsw`).
    pub involuntary_switches: u64,
    /// The number of page faults served without a disk (`ru_minflt`).
    pub minor_faults: u64,
    /// The number of page faults that had to wait for a disk (`ru_majflt`).
    pub major_faults: u64,
}

impl Usage {
    /// Returns what the calling thread has used since it started.
    #[must_use]
    pub fn of_this_thread() -> Self {
        // getrusage(2) lags by up to one scheduler tick, some 4 ms. Reading the thread's clock
        // brings the same account up to date.
        let _ = clock_gettime(ClockId::ThreadCPUTime);
        usage(libc::RUSAGE_THREAD)
    }

    /// Returns what the children of this process that were waited for have used, including their
    /// own children that they waited for.
    #[must_use]
    pub fn of_ended_children() -> Self {
        usage(libc::RUSAGE_CHILDREN)
    }
}

/// Returns the processor time, user and system together, of all threads of a process, including
/// those that have ended. It is available until the parent of an ended process has waited for it.
///
/// # Errors
///
/// As clock_getcpuclockid(3) and clock_gettime(2): `ESRCH` or `EINVAL` if there is no such process.
pub fn processor_time(pid: u32) -> Result<Duration, Errno> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
    let mut clock: libc::clockid_t = 0;
    let mut spent = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both functions fill in the one structure that they are given, which outlives them.
    // Proved by `engine/tests/engine/library.rs::the_time_of_a_process_has_all_of_its_threads_in_it`.
    let (found, read) = unsafe {
        let found = libc::clock_getcpuclockid(pid, &raw mut clock);
        (found, if found == 0 { libc::clock_gettime(clock, &raw mut spent) } else { 0 })
    };
    match (found, read) {
        (0, 0) => Ok(Duration::new(
            u64::try_from(spent.tv_sec).unwrap_or(0),
            u32::try_from(spent.tv_nsec).unwrap_or(0),
        )),
        // These functions return the error instead of setting errno.
        (0, _) => Err(last_errno()),
        (error, _) => Err(Errno::from_raw_os_error(error)),
    }
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

/// Calls getrusage(2) for one of the `RUSAGE_` numbers.
fn usage(whose: c_int) -> Usage {
    let mut raw = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure; a zeroed one is valid too, so that a failure, which
    // getrusage(2) cannot have for these arguments, would read as no usage. Proved by
    // `engine/tests/engine/library.rs::usage_grows_with_work`.
    let raw = unsafe {
        libc::getrusage(whose, raw.as_mut_ptr());
        raw.assume_init()
    };
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    let time = |value: libc::timeval| {
        Duration::from_secs(count(value.tv_sec)) + Duration::from_micros(count(value.tv_usec))
    };
    Usage {
        user: time(raw.ru_utime),
        system: time(raw.ru_stime),
        voluntary_switches: count(raw.ru_nvcsw),
        involuntary_switches: count(raw.ru_nivcsw),
        minor_faults: count(raw.ru_minflt),
        major_faults: count(raw.ru_majflt),
    }
}

/// Prepares glibc's allocator for a long-running process with many small allocations.
///
/// It returns memory that was freed during startup (malloc_trim(3)), and from then on merges each
/// freed chunk with its free neighbours, even below 128 bytes (`M_MXFAST` of mallopt(3)). Such
/// chunks lie between the tasks of a runtime, whose memory is aligned to 128 bytes. Other
/// allocators need no preparation.
pub fn prepare_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) sets a number, and malloc_trim(3) releases pages that are free, both under
    // the locks of the allocator. Proved by
    // `sys/src/usage.rs::allocated_memory_stays_intact_after_preparing_the_allocator`.
    unsafe {
        libc::mallopt(libc::M_MXFAST, 0);
        libc::malloc_trim(0);
    }
}

/// Sets the niceness of the calling thread and, from Linux 6.12 on, its time slice. A thread that
/// wakes up preempts one with a longer slice than its own; otherwise it may wait for the end of the
/// other's slice. The scheduling policy is unchanged.
///
/// # Errors
///
/// As sched_setattr(2): `EINVAL` before Linux 5.3 and under a policy without niceness, `EPERM` if
/// the niceness is lower than before.
pub fn set_thread_priority(niceness: i32, slice: Duration) -> Result<(), Errno> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        flags: KEEP_POLICY,
        niceness,
        slice: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
        ..Attributes::default()
    };
    // SAFETY: the kernel reads as many bytes as the structure says that it has. Proved by
    // `sys/src/usage.rs::a_thread_has_its_own_niceness`.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// `struct sched_attr` in its first version, which every kernel accepts.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    niceness: i32,
    priority: u32,
    slice: u64, // sched_runtime
    deadline: u64,
    period: u64,
}

/// `SCHED_FLAG_KEEP_POLICY`.
const KEEP_POLICY: u64 = 0x08;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_memory_stays_intact_after_preparing_the_allocator() {
        let piece = |number: usize| vec![number as u8; number % 300];
        let before: Vec<_> = (0..3000).map(piece).collect();
        prepare_allocator();
        let mut pieces = before;
        for number in 0..3000 {
            // Chunks of other lengths take the place of these.
            pieces.swap_remove(number * 7 % pieces.len());
            pieces.push(piece(number));
        }
        for piece in &pieces {
            assert!(piece.iter().all(|byte| *byte == piece[0]));
        }
    }

    #[test]
    fn a_thread_has_its_own_niceness() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let requested = (before + 1).min(19);
        std::thread::spawn(move || {
            set_thread_priority(requested, Duration::from_millis(10)).unwrap();
            assert_eq!(niceness(), requested);
        })
        .join()
        .unwrap();
        assert_eq!(niceness(), before);
        assert_eq!(size_of::<Attributes>(), 48);
    }
}
