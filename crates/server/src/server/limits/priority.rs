//! The priority of threads that help workers.

/// Lets workers go first: a helper that brings in pages for one client must not take the processor
/// from the worker, which has all others.
pub(crate) fn step_back() {
    // Linux has priorities of threads, whatever POSIX says; a refusal changes nothing.
    let _ = rustix::process::setpriority_process(None, HELPER_NICENESS);
}

/// Helpers get about a tenth of the processor if workers want all of it.
const HELPER_NICENESS: i32 = 10;
