//! Another program's system calls, seen as it makes them.
//!
//! The program is started here, and it and all that it starts stops at the calls that a [`Filter`]
//! names, until [`resume`] lets it go on. Where the kernel allows no filter it stops at all of them.
//! If the tracer dies, the program and all that it has started die with it.
//!
//! A thread can have one program traced at a time, and only the thread that has started it may
//! call [`wait`] and the rest.

mod filter;

use std::ffi::{CString, c_int};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
pub use underpass_sys::Resume;
use underpass_sys::{self as sys, CallInfo, SignalSet, StartFailure, TraceRequest, TracedProgram};

pub use filter::{Filter, Watch};

/// A program that was started to be traced.
#[derive(Debug)]
pub struct Program {
    pid: u32,
    told: std::fs::File,
}

/// What became of a program's start, known when its first [`Stop::Exec`] is, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It runs and stops as the filter says.
    Filtered,
    /// It runs, and the kernel has refused the filter: it has to be stopped at every call.
    Unfiltered,
    /// It could not be started.
    Failed(Errno),
}

impl Program {
    /// Starts a program, which is looked for as a shell does, to be traced with all that it will
    /// start itself.
    ///
    /// # Errors
    ///
    /// `EPERM` if tracing is not allowed here, or this program is traced already.
    ///
    /// # Panics
    ///
    /// If there is no word.
    pub fn start(words: &[CString], filter: Option<&Filter>) -> io::Result<Self> {
        let (child_go, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let (told, child_told) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let filter = filter.map_or(&[][..], |filter| &filter.code);
        let (go_parent, told_child) = (go.as_fd(), child_told.as_fd());
        let program =
            TracedProgram { words, filter, go: child_go.as_fd(), go_parent, report: told_child };
        let pid = sys::spawn_traced(&program)?;
        let seized = sys::trace(pid, TraceRequest::Seize(OPTIONS));
        if let Err(errno) = seized {
            // It has not been told to go, sees the end of the pipe and ends.
            drop((child_go, go));
            let _ = sys::wait_for_any();
            return Err(errno.into());
        }
        std::fs::File::from(go).write_all(&[1])?;
        Ok(Self { pid, told: told.into() })
    }

    /// Returns the number of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns what became of its start, which is known from its first [`Stop::Exec`] on.
    #[must_use]
    pub fn started(&self) -> Start {
        let mut start = Start::Filtered;
        let mut message = [0; 5];
        while (&self.told).read_exact(&mut message).is_ok() {
            let [what, errno @ ..] = message;
            let errno = Errno::from_raw_os_error(i32::from_ne_bytes(errno));
            match what {
                what if what == StartFailure::Filter as u8 => start = Start::Unfiltered,
                what if what == StartFailure::Program as u8 => start = Start::Failed(errno),
                _ => {}
            }
        }
        start
    }
}

/// What happened to a thread that is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It has ended with this exit code; if it is the first of a process, so has that.
    Exited(u8),
    /// It was ended by this signal.
    Killed(c_int),
    /// It has stopped and waits to be [`resume`]d.
    Stopped(Stop),
}

/// Why a thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At the beginning or end of a system call, because it was resumed to stop there.
    Call,
    /// At the beginning of a system call, because of the filter.
    Filter,
    /// Its process has just become another program; the process' other threads are gone.
    Exec,
    /// It has started a thread or process, which will stop too.
    Birth,
    /// A signal is about to reach it.
    Signal(c_int),
    /// It was stopped by a signal, as by Ctrl-Z, and is to listen for the one that ends that.
    Halt,
    /// It has just come to be traced, or goes on after a halt.
    Attached,
}

/// A system call at its beginning or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It begins.
    Begins {
        /// Its number in the numbering of this architecture; `None` if it is of another one.
        number: Option<i64>,
        /// What it was given.
        arguments: [u64; 6],
    },
    /// It ends with a number, or an error.
    Ends(Result<u64, Errno>),
}

/// Begins to trace a thread that runs; what it starts from now on is traced, too. Unlike a
/// [`Program`], it goes on if the tracer dies.
///
/// # Errors
///
/// `EPERM` if that is not allowed here, or the thread is traced already; `ESRCH` if it has ended.
pub fn seize(tid: u32) -> io::Result<()> {
    Ok(sys::trace(tid, TraceRequest::Seize(OPTIONS & !libc::PTRACE_O_EXITKILL))?)
}

/// Has a traced thread that runs stop.
///
/// # Errors
///
/// `ESRCH` if it has ended.
pub fn interrupt(tid: u32) -> io::Result<()> {
    Ok(sys::trace(tid, TraceRequest::Interrupt)?)
}

/// Lets a stopped thread go on untraced, with a signal unless it is 0.
///
/// # Errors
///
/// `ESRCH` if it was killed meanwhile.
pub fn detach(tid: u32, signal: c_int) -> io::Result<()> {
    Ok(sys::trace(tid, TraceRequest::Detach(signal))?)
}

/// Waits until something happens to a thread that is traced; `None` when none is left.
///
/// # Errors
///
/// As wait4(2).
pub fn wait() -> io::Result<Option<(u32, Event)>> {
    match sys::wait_for_any() {
        Ok((tid, status)) => Ok(Some((tid, event(status)))),
        Err(Errno::CHILD) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Lets a stopped thread go on, with a signal unless it is 0.
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
pub fn call(tid: u32) -> io::Result<Call> {
    let mut info = CallInfo::default();
    sys::trace(tid, TraceRequest::CallInfo(&mut info))?;
    let [first, second, ..] = info.words;
    if info.stage == AT_END {
        // The second word begins with a byte that says whether the first is an error.
        let is_error = second & 0xff != 0;
        let errno = || i32::try_from(first.wrapping_neg()).unwrap_or(0);
        return Ok(Call::Ends(if is_error {
            Err(Errno::from_raw_os_error(errno()))
        } else {
            Ok(first)
        }));
    }
    let is_own = filter::ARCHITECTURE.is_none_or(|own| own == info.architecture);
    let [number, arguments @ .., _] = info.words;
    Ok(Call::Begins { number: is_own.then_some(number.cast_signed()), arguments })
}

/// Signals that are waited for instead of being handled.
#[derive(Clone, Copy)]
pub struct Signals(SignalSet);

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signals")
    }
}

impl Signals {
    /// Blocks these signals for the calling thread and those that it starts from now on.
    #[must_use]
    pub fn block(signals: &[c_int]) -> Self {
        let set = SignalSet::new(signals);
        set.block();
        Self(set)
    }

    /// Waits for one of them. Returns which, and whether it came from the kernel, as one from the
    /// keys of a terminal does, which reaches a whole group of processes.
    ///
    /// # Errors
    ///
    /// As sigwaitinfo(2).
    pub fn wait(&self) -> io::Result<(c_int, bool)> {
        Ok(self.0.wait()?)
    }
}

fn event(status: c_int) -> Event {
    if libc::WIFEXITED(status) {
        return Event::Exited(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX));
    }
    if libc::WIFSIGNALED(status) {
        return Event::Killed(libc::WTERMSIG(status));
    }
    let signal = libc::WSTOPSIG(status);
    Event::Stopped(match status >> 16 {
        libc::PTRACE_EVENT_SECCOMP => Stop::Filter,
        libc::PTRACE_EVENT_EXEC => Stop::Exec,
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
            Stop::Birth
        }
        EVENT_STOP if HALTS.contains(&signal) => Stop::Halt,
        EVENT_STOP => Stop::Attached,
        _ if signal == libc::SIGTRAP | 0x80 => Stop::Call,
        _ => Stop::Signal(signal),
    })
}

/// What stops a process until it gets a SIGCONT.
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
