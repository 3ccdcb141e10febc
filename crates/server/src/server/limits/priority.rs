//! The priority of threads that help workers.

use std::cell::Cell;
use std::time::Duration;

/// Lowers the priority of this thread below the workers: a helper that reads pages for one client
/// must not take the processor from the worker, which serves all others.
pub(crate) fn step_back() {
    set_priority(HELPER_SLICE);
}

/// Lowers the priority of this thread, which computes for long, below the workers. It has to call
/// [`let_others_run`] regularly.
pub(crate) fn step_back_to_compute() {
    set_priority(COMPUTE_SLICE);
}

/// Lets a worker run that waits for the processor, each time this thread has done some 0.1 ms of
/// work. Without it, the thread would keep the processor until the next tick of the scheduler, up to
/// 4 ms. The work is counted, not timed, because the time includes that of other threads.
pub(crate) fn let_others_run(work: Work) {
    thread_local! {
        static DONE: Cell<u32> = const { Cell::new(0) };
    }
    let entries = match work {
        Work::Entry => 1,
        Work::Buffer => ENTRIES_AT_ONCE,
    };
    let done = DONE.get() + entries;
    if done <= ENTRIES_AT_ONCE {
        return DONE.set(done);
    }
    DONE.set(0);
    rustix::thread::sched_yield();
}

/// A piece of work that a thread has done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// An entry of a folder was read.
    Entry,
    /// A buffer was read, or a piece of a text made.
    Buffer,
}

/// The number of entries after which others may run. A buffer counts as many.
const ENTRIES_AT_ONCE: u32 = 64;

fn set_priority(slice: Duration) {
    // A refusal, as under a real-time policy, changes nothing.
    if underpass_sys::set_thread_priority(NICENESS, slice).is_err() {
        // On Linux each thread has its own priority, contrary to POSIX.
        let _ = rustix::process::setpriority_process(None, NICENESS);
    }
}

/// The niceness of helpers: about a tenth of the processor if workers want all of it.
const NICENESS: i32 = 10;

/// The time slice of helpers. It is longer than the default, which workers have and which is 3 ms at
/// most, so a worker that wakes up does not wait for a helper.
const HELPER_SLICE: Duration = Duration::from_millis(10);

/// The time slice of threads that compute: they get their share of the processor in small pieces.
const COMPUTE_SLICE: Duration = Duration::from_micros(100);
