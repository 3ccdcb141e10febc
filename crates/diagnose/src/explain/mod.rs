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
mod tracer;

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use rustix::process::{getpid, set_child_subreaper};
use underpass_engine::Usage;

use crate::procfs::field;
use crate::trace::{Filter, Program};

pub use calls::ByteDirection;
pub use counts::CallCount;
pub use error::ExplainError;
use interrupts::ProcessTree;
pub use ledger::{Count, EndCount, HiddenCalls, Ledger, MemoryKind, RefusalCount};
pub use tracer::Ending;
use tracer::Tracer;

/// The result of tracing a program to its end.
#[derive(Debug)]
pub struct Explained {
    /// The end of the program itself.
    pub ending: Ending,
    /// Seconds from its first instruction to the end of the last process.
    pub elapsed_s: f64,
    /// The resources that all its processes used, including the stops for tracing.
    pub usage: Usage,
    /// The bytes that its system calls moved.
    pub ledger: Ledger,
    /// Bytes of files that were mapped into memory, except programs and libraries.
    pub mapped_bytes: u64,
    /// The number of these files.
    pub mapped_files: u64,
    /// The number of processes.
    pub processes: u64,
    /// The number of threads of all processes.
    pub threads: u64,
    /// The number of times a thread was stopped by tracing; each stop is one voluntary context
    /// switch.
    pub stops: u64,
    /// All system calls by name, those that took longest first; `None` unless every call was
    /// watched.
    pub all_calls: Option<Vec<CallCount>>,
}

impl Explained {
    /// Returns the exit code of the program as a shell has it: 128 and the number of the signal
    /// that ended it, if one did.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.ending {
            Ending::Code(code) => code,
            Ending::Signal(signal) => 128_u8.wrapping_add(u8::try_from(signal).unwrap_or(0)),
        }
    }
}

/// Runs a program until it and all processes that it starts have ended.
///
/// With `every_call` the program stops at all of its system calls, which is slower, but counts
/// them.
///
/// # Errors
///
/// [`ExplainError`] if it cannot be started or traced.
pub fn run(words: &[OsString], every_call: bool) -> Result<Explained, ExplainError> {
    let program = words.first().map(OsString::as_os_str).unwrap_or_default();
    let not_started =
        |errno| ExplainError::NotStarted { program: program.display().to_string(), errno };
    let words: Result<Vec<_>, _> = words.iter().map(|word| CString::new(word.as_bytes())).collect();
    let words = words.map_err(|_| not_started(Errno::NOENT))?;
    // What processes and their descriptors are is known from there alone. That of another PID
    // namespace has other processes under these numbers.
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
    let (mapped_bytes, mapped_files) = tracer.observer.ledger.mapped_data();
    Ok(Explained {
        ending,
        elapsed_s,
        usage: Usage::of_ended_children(),
        mapped_bytes,
        mapped_files,
        processes: tracer.process_count,
        threads: tracer.thread_count,
        stops: tracer.stops,
        all_calls: tracer.every.then(|| tracer.counts.by_name()),
        ledger: tracer.observer.ledger,
    })
}

/// Returns whether some of the calls of this process, and so of those that it starts, are
/// answered by a filter (`Seccomp` in proc_pid_status(5)).
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "Seccomp").is_some_and(|mode| mode != "0")
}
