//! Tracing of another program's system calls.
//!
//! The program is started here; it and all processes that it starts stop at the calls that a
//! [`Filter`] names, until [`resume`] continues it. Where the kernel allows no filter it stops at
//! all of them. If the tracer dies, the program and all that it has started die with it.
//!
//! A thread can trace one program at a time, and only the thread that has started it may call
//! [`wait`] and the other functions.

mod filter;

use std::ffi::{CString, c_int};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
pub use underpass_sys::Resume;
use underpass_sys::{self as sys, CallInfo, StartFailure, TraceRequest, TracedProgram};

pub use filter::{CallFilter, Filter};

/// A program that was started to be traced.
#[derive(Debug)]
pub struct Program {
    pid: u32,
    messages: std::fs::File,
}

/// The result of starting a program, known from its first [`TraceStop::Exec`] or its end on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStart {
    /// It runs and stops as the filter says.
    Filtered,
    /// It runs, and the kernel has refused the filter: it must be stopped at every call.
    Unfiltered,
    /// It could not be started.
    Failed(Errno),
}

impl Program {
    /// Starts a program, found as a shell does, and traces it with all processes that it will
    /// start.
    ///
    /// # Errors
    ///
    /// `EPERM` if tracing is not allowed here, or this program is traced already.
    ///
    /// # Panics
    ///
    /// If `words` is empty.
    pub fn start(words: &[CString], filter: Option<&Filter>) -> io::Result<Self> {
        let (child_go, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let (messages, child_messages) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let filter = filter.map_or(&[][..], |filter| &filter.code);
        let (go_parent, told_child) = (go.as_fd(), child_messages.as_fd());
        let program =
            TracedProgram { words, filter, go: child_go.as_fd(), go_parent, report: told_child };
        let pid = sys::spawn_traced(&program)?;
        let seized = sys::trace(pid, TraceRequest::Seize(OPTIONS));
        if let Err(errno) = seized {
            // The child has not started the program; it sees the end of the pipe and exits.
            drop((child_go, go));
            let _ = sys::wait_for_any();
            return Err(errno.into());
        }
        std::fs::File::from(go).write_all(&[1])?;
        Ok(Self { pid, messages: messages.into() })
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the result of its start, which is known from its first [`TraceStop::Exec`] on.
    #[must_use]
    pub fn started(&self) -> TraceStart {
        let mut start = TraceStart::Filtered;
        let mut message = [0; 5];
        while (&self.messages).read_exact(&mut message).is_ok() {
            let [what, errno @ ..] = message;
            let errno = Errno::from_raw_os_error(i32::from_ne_bytes(errno));
            match what {
                what if what == StartFailure::Filter as u8 => start = TraceStart::Unfiltered,
                what if what == StartFailure::Program as u8 => start = TraceStart::Failed(errno),
                _ => {}
            }
        }
        start
    }
}

/// An event of a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// It has ended with this exit code; if it is the first of a process, so has the process.
    Exited(u8),
    /// It was ended by this signal.
    Killed(c_int),
    /// It has stopped and waits to be [`resume`]d.
    Stopped(TraceStop),
}

/// The reason why a thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStop {
    /// At the beginning or end of a system call, because it was resumed to stop there.
    Call,
    /// At the beginning of a system call, because of the filter.
    Filter,
    /// Its process has just run execve(2); the process' other threads are gone.
    Exec,
    /// It has started a thread or process, which will stop too.
    Birth,
    /// A signal is about to reach it.
    Signal(c_int),
    /// It was stopped by a signal, as by Ctrl-Z, and must wait for SIGCONT.
    Halt,
    /// It has just begun to be traced, or continues after a halt.
    Attached,
}

/// The beginning or end of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallBoundary {
    /// It begins.
    Begins {
        /// Its number on this architecture; `None` if it is a call of another one.
        number: Option<i64>,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// It ends with a number, or an error.
    Ends(Result<u64, Errno>),
}

/// Waits for an event of a traced thread; returns `None` when none is left.
///
/// # Errors
///
/// As wait4(2).
pub fn wait() -> io::Result<Option<(u32, TraceEvent)>> {
    match sys::wait_for_any() {
        Ok((tid, status)) => Ok(Some((tid, event(status)))),
        Err(Errno::CHILD) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Continues a stopped thread, with a signal unless it is 0.
///
/// # Errors
///
/// `ESRCH` if it was killed meanwhile.
pub fn resume(tid: u32, how: Resume, signal: c_int) -> io::Result<()> {
    Ok(sys::trace(tid, TraceRequest::Resume(how, signal))?)
}

/// Returns the system call at whose beginning or end a thread has stopped.
///
/// # Errors
///
/// `ESRCH` if it was killed meanwhile; `EIO` before Linux 5.3.
pub fn call(tid: u32) -> io::Result<CallBoundary> {
    let mut info = CallInfo::default();
    sys::trace(tid, TraceRequest::CallInfo(&mut info))?;
    let [first, second, ..] = info.words;
    if info.stage == AT_END {
        // The second word begins with a byte that says whether the first is an error.
        let is_error = second & 0xff != 0;
        let errno = || i32::try_from(first.wrapping_neg()).unwrap_or(0);
        return Ok(CallBoundary::Ends(if is_error {
            Err(Errno::from_raw_os_error(errno()))
        } else {
            Ok(first)
        }));
    }
    let is_own = filter::ARCHITECTURE.is_none_or(|own| own == info.architecture);
    let [number, arguments @ .., _] = info.words;
    Ok(CallBoundary::Begins { number: is_own.then_some(number.cast_signed()), arguments })
}

fn event(status: c_int) -> TraceEvent {
    if libc::WIFEXITED(status) {
        return TraceEvent::Exited(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX));
    }
    if libc::WIFSIGNALED(status) {
        return TraceEvent::Killed(libc::WTERMSIG(status));
    }
    let signal = libc::WSTOPSIG(status);
    TraceEvent::Stopped(match status >> 16 {
        libc::PTRACE_EVENT_SECCOMP => TraceStop::Filter,
        libc::PTRACE_EVENT_EXEC => TraceStop::Exec,
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
            TraceStop::Birth
        }
        EVENT_STOP if HALTS.contains(&signal) => TraceStop::Halt,
        EVENT_STOP => TraceStop::Attached,
        _ if signal == libc::SIGTRAP | 0x80 => TraceStop::Call,
        _ => TraceStop::Signal(signal),
    })
}

/// The signals that stop a process until it gets a SIGCONT.
const HALTS: [c_int; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// `PTRACE_EVENT_STOP` of linux/ptrace.h, which not every libc names.
const EVENT_STOP: c_int = 128;

/// `PTRACE_SYSCALL_INFO_EXIT`.
const AT_END: u8 = 2;

const OPTIONS: c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_EXITKILL;
