//! Runs any program under ptrace(2) and writes the receipt for it that underpass writes for itself.
//!
//! The program and all that it starts stops at the system calls that move bytes, which a filter in
//! the kernel picks (`calls.rs`). A stop at the beginning tells what the call is about, another
//! at the end what it came to (`observer.rs`).

mod calls;
mod descriptors;
mod error;
mod interrupts;
mod ledger;
mod mappings;
mod observer;
mod process;
mod receipt;
mod text;
mod tracer;

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use rustix::process::{getpid, set_child_subreaper};
use underpass_engine::Usage;
use underpass_engine::trace::{Filter, Program};

use crate::procfs::field;

pub(crate) use error::ExplainError;
use interrupts::Family;
pub(crate) use receipt::ProgramReceipt;
pub(crate) use text::text;
use tracer::{Ending, Tracer};

/// What was seen of a program, and how this process is to end: as that one did.
#[derive(Debug)]
pub(crate) struct Explained {
    pub(crate) receipt: ProgramReceipt,
    pub(crate) exit_code: u8,
}

/// Runs a program to the end of all that it starts.
///
/// # Errors
///
/// If it cannot be started, or not be traced.
pub(crate) fn run(words: &[OsString], every_call: bool) -> Result<Explained, ExplainError> {
    let program = words.first().map(OsString::as_os_str).unwrap_or_default();
    let not_started =
        |errno| ExplainError::NotStarted { program: program.display().to_string(), errno };
    let words_of_c: Result<Vec<_>, _> =
        words.iter().map(|word| CString::new(word.as_bytes())).collect();
    let words_of_c = words_of_c.map_err(|_| not_started(rustix::io::Errno::NOENT))?;
    // What another filter refuses, as containers have them, does not get as far as to ours.
    let filter = match every_call || is_filtered() {
        true => None,
        false => Filter::new(&calls::watched()),
    };
    // What is left behind by its parent becomes a child of this one, so that its cost is known.
    let _ = set_child_subreaper(Some(getpid()));
    let started = Program::start(&words_of_c, filter.as_ref()).map_err(ExplainError::starting)?;
    let family = Family::default();
    interrupts::pass_on(&family);
    let mut tracer = Tracer::new(started, filter.is_none(), &family);
    let (ending, elapsed_s) = tracer.follow().map_err(ExplainError::Io)?;
    let exit_code = match ending {
        Ending::Code(code) => code,
        Ending::Signal(signal) => 128_u8.wrapping_add(u8::try_from(signal).unwrap_or(0)),
        Ending::NotStarted(errno) => return Err(not_started(errno)),
    };
    let command = words.iter().map(|word| shown(word)).collect();
    let usage = Usage::of_ended_children();
    let receipt = ProgramReceipt::new(command, &tracer, (ending, elapsed_s), usage);
    Ok(Explained { receipt, exit_code })
}

/// Whether some of the calls of this process, and so of those that it starts, are answered by a
/// filter (`Seccomp` in proc_pid_status(5)).
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "Seccomp").is_some_and(|mode| mode != "0")
}

fn shown(word: &OsStr) -> String {
    word.to_string_lossy().into_owned()
}
