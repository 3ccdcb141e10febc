//! Calls that may wait for another process.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use underpass_engine::wait::{Limits, POLL_INTERVAL};

/// Runs a call that may wait for another process, such as open(2) of a FIFO, connect(2), or the
/// name resolution of a host.
///
/// The kernel restarts such a call after a signal handler, and a signal just before the call goes
/// unnoticed. So the call runs on a separate thread, which is abandoned at the limits and ends with
/// the process. If no thread can be started, the call runs on this one and cannot be interrupted.
///
/// # Errors
///
/// As the call; `EINTR` soon after the flag is set, and `ETIMEDOUT` at the deadline.
pub fn interruptible<T, F>(limits: Limits<'_>, call: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    let (send, receive) = channel();
    // The call is sent to the thread once that runs: a failed spawn would not return it.
    let (hand_over, handed) = channel();
    let thread = thread::Builder::new().name("waiting".to_owned()).spawn(move || {
        // Nothing receives the result after a cancellation.
        let _ = handed.recv().map(|call: F| send.send(call()));
    });
    if thread.is_err() {
        return call();
    }
    // This cannot fail: the thread waits for the call.
    let _ = hand_over.send(call);
    loop {
        match receive.recv_timeout(limits.moment()?.unwrap_or(POLL_INTERVAL)) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::Other.into()),
        }
    }
}
