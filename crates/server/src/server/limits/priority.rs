//! The priority of threads that help workers.

use std::cell::Cell;
use std::time::Duration;

/// Lowers the priority of this thread below the workers: a helper that reads pages for one client
/// must not take the processor from the worker, which serves all others.
pub(crate) fn step_back() {
    set_priority(HELPER_RUN_TIME);
}

/// Lowers the priority of this thread, which computes for long, below the workers. It has to call
/// [`let_others_run`] now and then.
pub(crate) fn step_back_to_compute() {
    set_priority(COMPUTE_TIME);
}

/// Lets a worker run that waits for the processor, each time this thread has done some 0.1 ms of
/// work. Without it, the thread would keep the processor until the next tick of the scheduler, up to
/// 4 ms. Short work is not interrupted: it counts itself instead of asking a clock, which goes on while
/// others run.
pub(crate) fn let_others_run(work: Work) {
    thread_local! {
        static DONE: Cell<u32> = const { Cell::new(0) };
    }
    let done = DONE.get()
        + match work {
            Work::Entry => 1,
            Work::Buffer => ENTRIES_AT_ONCE,
        };
    if done > ENTRIES_AT_ONCE {
        rustix::thread::sched_yield();
    }
    DONE.set(if done > ENTRIES_AT_ONCE { 0 } else { done });
}

/// The work that a thread has done since it last let others run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// An entry of a folder was read.
    Entry,
    /// A buffer was read, or a piece of a text made.
    Buffer,
}

/// The number of entries after which others may run.
const ENTRIES_AT_ONCE: u32 = 64;

fn set_priority(run_time: Duration) {
    // A refusal, as under a real-time policy, changes nothing.
    if underpass_sys::set_thread_priority(NICENESS, run_time).is_err() {
        // On Linux each thread has its own priority, contrary to POSIX.
        let _ = rustix::process::setpriority_process(None, NICENESS);
    }
}

/// The niceness of helpers: about a tenth of the processor if workers want all of it.
const NICENESS: i32 = 10;

/// The time that a helper asks to run at once. It is longer than the default, which workers have and
/// which is 3 ms at most, so a worker that wakes up does not wait for a helper.
const HELPER_RUN_TIME: Duration = Duration::from_millis(10);

/// The same for a helper that computes, which lets others run each time: a short time makes its share
/// of the processor come in small pieces.
const COMPUTE_TIME: Duration = Duration::from_micros(100);
