//! Runs any program under ptrace(2) and counts what moves its bytes.
//!
//! The program and all processes that it starts stop at the system calls that move bytes, which a
//! filter in the kernel selects (`calls.rs`). A stop at the beginning shows the arguments of a
//! call, another at the end its result (`observer.rs`).

mod calls;
mod counts;
mod descriptors;
mod error;
mod interrupts;
mod ledger;
mod mappings;
mod observer;
mod process;
mod receipt;
mod tracer;

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use rustix::process::{getpid, set_child_subreaper};

use crate::procfs::field;
use crate::trace::{Filter, Program};

pub use counts::CallCount;
pub use error::ExplainError;
use interrupts::ProcessTree;
pub use ledger::{Count, EndCount, HiddenCalls};
pub use receipt::{
    CallReceipt, CrossingReceipt, EndReceipt, MoveReceipt, ProgramReceipt, RefusalReceipt,
};
use tracer::Tracer;

/// Runs a program until it and all processes that it starts have ended, and returns the receipt.
///
/// With `every_call` the program stops at all of its system calls, which is slower, but counts
/// them.
///
/// # Errors
///
/// [`ExplainError`] if it cannot be started or traced.
pub fn run(arguments: &[OsString], every_call: bool) -> Result<ProgramReceipt, ExplainError> {
    let program = arguments.first().map(OsString::as_os_str).unwrap_or_default();
    let not_started =
        |errno| ExplainError::NotStarted { program: program.display().to_string(), errno };
    let words: Result<Vec<_>, _> =
        arguments.iter().map(|word| CString::new(word.as_bytes())).collect();
    let words = words.map_err(|_| not_started(Errno::NOENT))?;
    // Only /proc shows processes and their descriptors. That of another PID namespace has
    // other processes under these numbers.
    let own = std::fs::read_link("/proc/self").ok();
    if own != Some(getpid().as_raw_nonzero().to_string().into()) {
        return Err(ExplainError::NoProc);
    }
    // Calls that another filter refuses, as in containers, do not reach this one.
    let filter = if every_call || is_filtered() { None } else { Filter::new(&calls::watched()) };
    // Orphaned processes become children of this one, so that their usage is counted.
    let _ = set_child_subreaper(Some(getpid()));
    let started = Program::start(&words, filter.as_ref()).map_err(ExplainError::starting)?;
    let family = ProcessTree::default();
    interrupts::pass_on(&family);
    let mut tracer = Tracer::new(started, filter.is_none(), &family);
    let (ending, elapsed_s) = tracer.follow().map_err(ExplainError::Io)?;
    let ending = ending.map_err(not_started)?;
    Ok(ProgramReceipt::new(arguments, ending, elapsed_s, tracer))
}

/// Returns whether some of the calls of this process, and so of those that it starts, are
/// answered by a filter (`Seccomp` in proc_pid_status(5)).
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "Seccomp").is_some_and(|mode| mode != "0")
}
