//! SIGINT, SIGTERM and SIGHUP end a transfer in order: temporary files are removed, the peer sees
//! a reset. SIGXFSZ is an error of the write that caused it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use underpass_copy::OpenCall;
use underpass_engine::wait::Limits;
use underpass_sys::{cancel_on, is_ignored};

/// Returns a flag that the first SIGINT, SIGTERM or SIGHUP sets; a later one ends the process at
/// once.
///
/// A signal that is ignored when the process starts stays so, as after nohup(1) or for a command in
/// the background of a script.
pub(crate) fn cancel_flag() -> &'static AtomicBool {
    cancel_on(&[SIGINT, SIGHUP, SIGTERM])
}

/// Makes a write beyond the file size limit of setrlimit(2) (`ulimit -f`) fail with `EFBIG`, so
/// that temporary files are cleaned up, instead of ending the process by SIGXFSZ.
pub(crate) fn outlive_file_limit() {
    // An ignored SIGXFSZ has that effect already, also in child processes.
    if !is_ignored(SIGXFSZ) {
        // This fails only for signals that cannot be caught, and SIGXFSZ can.
        let _ = flag::register(SIGXFSZ, Arc::default());
    }
}

/// Runs a system call that may wait for another process, and returns `EINTR` soon after `cancel` is
/// set.
pub(crate) fn interruptible<T, F>(cancel: &AtomicBool, call: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    underpass_transport::interruptible(Limits::new(None, Some(cancel)), call)
}

/// Returns a function that opens the ends of a transfer, until `cancel` is set.
pub(crate) fn opener(cancel: &AtomicBool) -> impl Fn(OpenCall) -> io::Result<OwnedFd> {
    move |call| interruptible(cancel, call)
}
