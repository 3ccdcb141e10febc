//! Starts a program, stops it at its system calls, and waits for its end: ptrace(2), wait4(2),
//! fork(2), and waiting for signals.

use std::ffi::{CString, c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::last_errno;

/// A request to the kernel about one traced thread.
#[derive(Debug)]
pub enum TraceRequest<'a> {
    /// `PTRACE_SEIZE` with these options.
    Seize(c_int),
    /// Continues a stopped thread, delivering a signal unless it is 0.
    Resume(Resume, c_int),
    /// `PTRACE_GET_SYSCALL_INFO`.
    CallInfo(&'a mut CallInfo),
}

/// How a thread continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Until the filter stops it (`PTRACE_CONT`).
    Free,
    /// Until the beginning or end of any system call (`PTRACE_SYSCALL`).
    ToCall,
    /// Not at all, until a signal resumes it (`PTRACE_LISTEN`).
    Listen,
}

impl Resume {
    /// Returns the number of the request.
    const fn number(self) -> c_uint {
        (match self {
            Self::Free => libc::PTRACE_CONT,
            Self::ToCall => libc::PTRACE_SYSCALL,
            Self::Listen => libc::PTRACE_LISTEN,
        }) as c_uint
    }
}

/// `ptrace_syscall_info` of linux/ptrace.h, with its union as plain numbers.
#[derive(Debug, Default)]
#[repr(C)]
pub struct CallInfo {
    /// `op`: whether the call begins (1), ends (2), or a filter has stopped it before it begins
    /// (3).
    pub stage: u8,
    padding: [u8; 3],
    /// The architecture whose numbering of calls applies, an `AUDIT_ARCH_` of linux/audit.h.
    pub architecture: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    /// The union: number and arguments at the beginning; the result and whether it is an error at
    /// the end.
    pub words: [u64; 8],
}

/// Sends a request about a traced thread to the kernel.
///
/// # Errors
///
/// As ptrace(2): `ESRCH` if there is no such thread, or it is not stopped; `EPERM` if it may not be
/// traced.
pub fn trace(tid: u32, request: TraceRequest<'_>) -> Result<(), Errno> {
    let tid = libc::pid_t::try_from(tid).map_err(|_| Errno::SRCH)?;
    let nothing = std::ptr::null_mut::<c_void>();
    // SAFETY: the requests that carry numbers take no address, and the one that fills a structure
    // is given its size and borrows it exclusively for the call. Changes to another process touch
    // no memory of this one. Proved by `diagnose/tests/trace.rs`.
    let result = unsafe {
        match request {
            TraceRequest::Seize(options) => {
                libc::ptrace(libc::PTRACE_SEIZE, tid, nothing, options as c_long)
            }
            TraceRequest::Resume(how, signal) => {
                libc::ptrace(how.number() as _, tid, nothing, c_long::from(signal))
            }
            TraceRequest::CallInfo(info) => libc::ptrace(
                GET_SYSCALL_INFO as _,
                tid,
                size_of::<CallInfo>(),
                std::ptr::from_mut(info),
            ),
        }
    };
    if result < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Waits until a child of the calling thread, or a thread that it traces, has ended or stopped,
/// and returns its number and wait status. Children of other threads are not waited for.
///
/// # Errors
///
/// As wait4(2): `ECHILD` if there is none left.
pub fn wait_for_any() -> Result<(u32, c_int), Errno> {
    loop {
        let mut status = 0;
        let flags = libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: the kernel fills in the one number it is given. Proved by
        // `diagnose/tests/trace.rs`.
        let tid = unsafe { libc::wait4(-1, &raw mut status, flags, std::ptr::null_mut()) };
        match u32::try_from(tid) {
            Ok(tid) => return Ok((tid, status)),
            Err(_) if last_errno() == Errno::INTR => {}
            Err(_) => return Err(last_errno()),
        }
    }
}

/// What a child needs to execute a program.
#[derive(Debug)]
pub struct TracedProgram<'a> {
    /// The program, as execvp(3) finds it, and its arguments.
    pub words: &'a [CString],
    /// The seccomp filter of the calls that stop it.
    pub filter: &'a [libc::sock_filter],
    /// The reading end of a pipe: the child executes the program once it has read a byte from it,
    /// and exits if every writing end is closed.
    pub go: BorrowedFd<'a>,
    /// The writing end of that pipe, which the child closes.
    pub go_parent: BorrowedFd<'a>,
    /// Where the child reports a failure: a byte, a [`StartFailure`], and an errno as an `i32` in
    /// the machine's byte order.
    pub report: BorrowedFd<'a>,
}

/// The failure that a child reports before it executes another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StartFailure {
    /// The filter could not be installed; the program is started without it.
    Filter = 1,
    /// The program could not be started.
    Program = 2,
}

/// Forks a child that executes the program once a byte arrives through its pipe, and returns the
/// child's process ID.
///
/// # Errors
///
/// As fork(2).
///
/// # Panics
///
/// If `words` is empty.
pub fn spawn_traced(program: &TracedProgram<'_>) -> Result<u32, Errno> {
    assert!(!program.words.is_empty(), "no program");
    let mut words: Vec<*const c_char> = program.words.iter().map(|word| word.as_ptr()).collect();
    words.push(std::ptr::null());
    // SAFETY: the child does nothing but `become_program`, which neither allocates nor takes a lock
    // that another thread could have held. Proved by `diagnose/tests/trace.rs`.
    match unsafe { libc::fork() } {
        0 => become_program(program, &words),
        child => u32::try_from(child).map_err(|_| last_errno()),
    }
}

/// Completes the start in the child, up to executing the program.
fn become_program(program: &TracedProgram<'_>, words: &[*const c_char]) -> ! {
    let report = |what: StartFailure, errno: Errno| {
        let number = errno.raw_os_error().to_ne_bytes();
        let message = [what as u8, number[0], number[1], number[2], number[3]];
        let fd = program.report.as_raw_fd();
        // SAFETY: the message is a local array; a failure to write it cannot be reported. Proved by
        // `diagnose/tests/trace.rs::a_program_that_cannot_be_started_reports_the_errno`.
        unsafe { libc::write(fd, message.as_ptr().cast(), message.len()) };
    };
    let mut byte = 0_u8;
    // SAFETY: only calls that are safe in a child of fork(2), with addresses that the parent has
    // prepared: `words` ends with a null pointer and its strings outlive this child's borrow of
    // them, the filter is copied by the kernel. Proved by `diagnose/tests/trace.rs`.
    unsafe {
        // Rust ignores SIGPIPE, and an ignored signal stays ignored in an executed program.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::close(program.go_parent.as_raw_fd());
        if libc::read(program.go.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(1);
        }
        if !program.filter.is_empty()
            && let Err(errno) = install(program.filter)
        {
            report(StartFailure::Filter, errno);
        }
        libc::execvp(words[0], words.as_ptr());
        report(StartFailure::Program, last_errno());
        libc::_exit(127)
    }
}

/// Installs a seccomp filter for the calling thread.
fn install(filter: &[libc::sock_filter]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?,
        filter: filter.as_ptr().cast_mut(),
    };
    let seccomp = || {
        // SAFETY: the kernel copies the program, whose length was just taken from it. Proved by
        // `diagnose/tests/trace.rs`.
        let result = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
        };
        if result < 0 { Err(last_errno()) } else { Ok(()) }
    };
    match seccomp() {
        // Without the privilege, the kernel requires no_new_privs. That costs nothing: a traced
        // process without privileges gets none from set-user-ID programs anyway.
        Err(Errno::ACCESS) => {
            // SAFETY: this command takes only numbers. Proved by `diagnose/tests/trace.rs`, where
            // the tests run without privileges.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            seccomp()
        }
        done => done,
    }
}

/// A signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// Its number.
    pub number: c_int,
    /// Whether the kernel sent it, as for terminal keys, which signal a process group.
    pub is_from_kernel: bool,
}

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// Creates the set of these signals.
    #[must_use]
    pub fn new(signals: &[c_int]) -> Self {
        let mut set = std::mem::MaybeUninit::uninit();
        // SAFETY: sigemptyset(3) initializes the set, and sigaddset(3) refuses invalid numbers.
        // Proved by `cli/tests/diagnose/explain/ends.rs`.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), *signal);
            }
            Self(set.assume_init())
        }
    }

    /// Blocks the signals of the set for the calling thread and those that it starts later.
    pub fn block(&self) {
        // SAFETY: the set is initialized. Proved by `cli/tests/diagnose/explain/ends.rs`.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const self.0, std::ptr::null_mut()) };
    }

    /// Waits for one of the signals.
    ///
    /// # Errors
    ///
    /// As sigwaitinfo(2), except `EINTR`, which occurs whenever this process was stopped and
    /// continued.
    pub fn wait(&self) -> Result<ReceivedSignal, Errno> {
        loop {
            let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
            // SAFETY: the kernel fills the structure; a zeroed one is valid too. Proved by
            // `cli/tests/diagnose/explain/ends.rs`.
            let (number, info) = unsafe {
                let number = libc::sigwaitinfo(&raw const self.0, info.as_mut_ptr());
                (number, info.assume_init())
            };
            if number >= 0 {
                return Ok(ReceivedSignal { number, is_from_kernel: info.si_code > 0 });
            }
            match last_errno() {
                Errno::INTR => {}
                errno => return Err(errno),
            }
        }
    }
}

/// `PTRACE_GET_SYSCALL_INFO` of linux/ptrace.h, which is not in every libc.
const GET_SYSCALL_INFO: c_uint = 0x420e;
