//! The state of the process: standard streams that were closed when it began, and signals.
//!
//! Before `main`, Rust's runtime opens /dev/null in place of closed streams, so that no file gets
//! their numbers. Bytes written there vanish without an error, and reads find the end at once.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::last_errno;

/// A bit for each of the first three descriptors.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: the loader calls the functions of this section once, before Rust's runtime and with a
// valid stack. This one needs nothing that the runtime sets up. Proved by
// `cli/tests/commands/errors.rs::closed_standard_streams_are_errors`.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for descriptor in 0..3 {
        // SAFETY: F_GETFD reads a flag of a descriptor by its number, whether that is open or not.
        // Proved by `cli/tests/commands/errors.rs::closed_standard_streams_are_errors`.
        let flags = unsafe { libc::fcntl(descriptor as c_int, libc::F_GETFD) };
        CLOSED.fetch_or(u8::from(flags < 0) << descriptor, Ordering::Relaxed);
    }
}

/// Returns whether a standard stream was closed when the program began.
#[must_use]
pub fn was_closed(stream: &impl AsFd) -> bool {
    let descriptor = stream.as_fd().as_raw_fd();
    (0..3).contains(&descriptor) && CLOSED.load(Ordering::Relaxed) >> descriptor & 1 == 1
}

/// Returns a new descriptor for the file that is open under this number, such as one of `/dev/fd`.
///
/// # Errors
///
/// `EBADF` if no file is, and as fcntl(2).
pub fn duplicate(number: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: F_DUPFD_CLOEXEC takes any number and changes nothing about the descriptor that has
    // it. Proved by
    // `cli/tests/copy/cp/same_file.rs::an_open_file_is_written_to_where_processes_share_nothing`.
    let new = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if new < 0 {
        return Err(last_errno());
    }
    // SAFETY: the descriptor is new and has no other owner. Proved by
    // `cli/tests/copy/cp/same_file.rs::an_open_file_is_written_to_where_processes_share_nothing`.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

/// Whether a signal has requested the program to end.
static CANCELLED: AtomicBool = AtomicBool::new(false);

/// When the first such signal arrived, in milliseconds since the system was started; 0 before it.
static CANCELLED_AT: AtomicI64 = AtomicI64::new(0);

/// Returns whether a signal is ignored (sigaction(2)).
#[must_use]
pub fn is_ignored(signal: c_int) -> bool {
    // SAFETY: zeroes are valid in all fields. Proved as the call below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action the call only writes to `action`. Proved by
    // `cli/tests/commands/interrupts.rs::a_signal_that_was_ignored_stays_so`.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Makes the first of these signals set the returned flag, and a later one end the process at once
/// with exit code 1. Signals within [`SAME_REQUEST`] of the first are ignored. Those that are
/// ignored already or cannot be caught stay as they are.
pub fn cancel_on(signals: &[c_int]) -> &'static AtomicBool {
    // The first call looks up the vDSO, which a handler must not do.
    let _ = clock_gettime(ClockId::Boottime);
    for &signal in signals.iter().filter(|signal| !is_ignored(**signal)) {
        // SAFETY: zeroes are valid in all fields: no flags, and an empty mask. Proved as the call
        // below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = cancel as extern "C" fn(c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: `action` is initialized, and its function only does what a handler may do. Proved
        // by `cli/tests/commands/interrupts.rs::signals_that_come_together_end_a_command_in_order`.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
    &CANCELLED
}

/// Handles a signal: it loads and stores atomics, and calls clock_gettime(2) and _exit(2), which
/// signal-safety(7) allows.
extern "C" fn cancel(_signal: c_int) {
    let now = clock_gettime(ClockId::Boottime);
    let now = now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000).max(1);
    CANCELLED.store(true, Ordering::Relaxed);
    let first = CANCELLED_AT.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err_and(|first| now - first >= SAME_REQUEST.as_millis() as i64) {
        // SAFETY: it takes any code and does not return. Proved by
        // `cli/tests/commands/interrupts.rs::a_second_signal_ends_a_command_at_once`.
        unsafe { libc::_exit(1) }
    }
}

/// The time within which several signals count as one request: timeout(1) and others signal a
/// process and then its group, and a terminal signals both a program and a parent that forwards
/// signals to it.
pub const SAME_REQUEST: Duration = Duration::from_millis(250);
