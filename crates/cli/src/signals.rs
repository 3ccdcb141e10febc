//! SIGINT, SIGTERM and SIGHUP end a transfer in order: temporary files are removed, the peer sees
//! a reset. SIGXFSZ is an error of the write that caused it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use underpass_sys::{cancel_on, is_ignored};

/// Returns a flag that the first SIGINT, SIGTERM or SIGHUP sets; a later one ends the process at
/// once.
///
/// A signal that is ignored when the process starts stays so, as after nohup(1) or for a command in
/// the background of a script.
pub(crate) fn cancel_flag() -> &'static AtomicBool {
    cancel_on(&[SIGINT, SIGHUP, SIGTERM])
}

/// Has a write beyond the limit of setrlimit(2) for files (`ulimit -f`) fail with `EFBIG`, which is
/// cleaned up after, instead of ending the process by SIGXFSZ.
pub(crate) fn outlive_file_limit() {
    // One that is ignored has that effect already, also in programs that this one starts.
    if !is_ignored(SIGXFSZ) {
        // It fails only for signals that cannot be caught, which this one can.
        let _ = flag::register(SIGXFSZ, Arc::default());
    }
}

/// Runs a system call that may wait for another process, such as open(2) of a FIFO or connect(2),
/// and returns `EINTR` soon after `cancel` is set.
///
/// The kernel restarts such a call after a signal handler, and a signal that arrives just before
/// the call is not noticed at all. The call therefore runs on a separate thread, which is abandoned
/// when the command is cancelled and ends with the process. If no thread can be started, the call
/// runs here, and no signal ends it.
pub(crate) fn interruptible<T, F>(cancel: &AtomicBool, call: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    interruptible_within(None, cancel, call)
}

/// Runs a system call as [`interruptible`] does, and returns `ETIMEDOUT` if it takes longer than
/// `timeout`.
pub(crate) fn interruptible_within<T, F>(
    timeout: Option<Duration>,
    cancel: &AtomicBool,
    call: F,
) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    let begun = Instant::now();
    let (send, receive) = channel();
    // It is handed over once there is a thread: one that cannot be started does not give it back.
    let (hand_over, handed) = channel();
    let thread = thread::Builder::new().name("waiting".to_owned()).spawn(move || {
        // After a cancellation there is no receiver.
        let _ = handed.recv().map(|call: F| send.send(call()));
    });
    if thread.is_err() {
        return call();
    }
    // The thread waits for it.
    let _ = hand_over.send(call);
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(Errno::INTR.into());
        }
        if timeout.is_some_and(|timeout| begun.elapsed() >= timeout) {
            return Err(Errno::TIMEDOUT.into());
        }
        match receive.recv_timeout(POLL_INTERVAL) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::Other.into()),
        }
    }
}

/// The interval at which a wait checks whether the command was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
