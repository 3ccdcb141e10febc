//! The priority of threads that help workers.

use std::cell::Cell;
use std::time::{Duration, Instant};

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

/// Lets a worker run that waits for the processor, if this thread has computed for a while. Without
/// it, the thread would keep the processor until the next tick of the scheduler, some 4 ms.
pub(crate) fn let_others_run() {
    thread_local! {
        static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    if BEGAN.get().is_none_or(|began| began.elapsed() >= COMPUTE_TIME) {
        rustix::thread::sched_yield();
        BEGAN.set(Some(Instant::now()));
    }
}

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
