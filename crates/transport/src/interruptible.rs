//! Calls that may wait for another process.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use underpass_engine::wait::{Limits, POLL_INTERVAL};

/// Runs a system call that may wait for another process, such as open(2) of a FIFO or connect(2),
/// or the search for the addresses of a host.
///
/// The kernel restarts such a call after a signal handler, and a signal that arrives just before
/// the call is not noticed at all. The call therefore runs on a separate thread, which is abandoned
/// at the limits and ends with the process. If no thread can be started, the call runs here, and
/// nothing ends it.
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
        match receive.recv_timeout(limits.moment()?.unwrap_or(POLL_INTERVAL)) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::Other.into()),
        }
    }
}
