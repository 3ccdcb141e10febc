//! The priority of threads that help workers.

/// Lowers the priority of this thread below the workers: a helper that reads pages for one client
/// must not take the processor from the worker, which serves all others.
pub(crate) fn step_back() {
    // On Linux each thread has its own priority, contrary to POSIX; a refusal changes nothing.
    let _ = rustix::process::setpriority_process(None, HELPER_NICENESS);
}

/// The niceness of helpers: about a tenth of the processor if workers want all of it.
const HELPER_NICENESS: i32 = 10;
