//! Starting a program, stopping it at its system calls, and waiting for its ends: ptrace(2),
//! wait4(2), fork(2), and signals that are waited for.

use std::ffi::{CString, c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::last_errno;

/// A question or command to the kernel about one thread that is traced.
#[derive(Debug)]
pub(crate) enum TraceRequest<'a> {
    /// `PTRACE_SEIZE` with these options.
    Seize(c_int),
    /// `PTRACE_CONT`, `PTRACE_SYSCALL` or `PTRACE_LISTEN`, delivering a signal unless it is 0.
    Resume(c_uint, c_int),
    /// `PTRACE_GET_SYSCALL_INFO`.
    CallInfo(&'a mut CallInfo),
}

/// `ptrace_syscall_info` of linux/ptrace.h, its union as numbers.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct CallInfo {
    pub(crate) stage: u8,
    padding: [u8; 3],
    pub(crate) architecture: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    pub(crate) words: [u64; 8],
}

/// Puts a question to the kernel about a thread that is traced, or gives it a command.
///
/// # Errors
///
/// As ptrace(2): `ESRCH` if there is no such thread, or it is not stopped; `EPERM` if it may not
/// be traced.
pub(crate) fn trace(tid: u32, request: TraceRequest<'_>) -> Result<(), Errno> {
    let tid = libc::pid_t::try_from(tid).map_err(|_| Errno::SRCH)?;
    let nothing = std::ptr::null_mut::<c_void>();
    // SAFETY: the requests that carry numbers take no address, and the one that fills a structure
    // is told its size and has it to itself for the call. What happens to another process touches
    // no memory of this one. Proved by `tests/trace.rs`.
    let result = unsafe {
        match request {
            TraceRequest::Seize(options) => {
                libc::ptrace(libc::PTRACE_SEIZE, tid, nothing, options as c_long)
            }
            TraceRequest::Resume(how, signal) => {
                libc::ptrace(how as _, tid, nothing, c_long::from(signal))
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

/// Waits until any child or traced thread has ended or stopped: its number and wait status.
///
/// # Errors
///
/// As wait4(2): `ECHILD` if there is none left.
pub(crate) fn wait_for_any() -> Result<(u32, c_int), Errno> {
    loop {
        let mut status = 0;
        // SAFETY: the kernel fills in the one number it is given. Proved by `tests/trace.rs`.
        let tid = unsafe { libc::wait4(-1, &raw mut status, libc::__WALL, std::ptr::null_mut()) };
        match u32::try_from(tid) {
            Ok(tid) => return Ok((tid, status)),
            Err(_) if last_errno() == Errno::INTR => {}
            Err(_) => return Err(last_errno()),
        }
    }
}

/// What a child needs to become a program.
#[derive(Debug)]
pub(crate) struct Seed<'a> {
    /// The program, as execvp(3) finds it, and its arguments.
    pub(crate) words: &'a [CString],
    /// Which calls are to stop it.
    pub(crate) filter: &'a [libc::sock_filter],
    /// The child begins when it can read a byte from this one,
    pub(crate) go: BorrowedFd<'a>,
    /// and ends when nobody has the other end, this, any more.
    pub(crate) go_parent: BorrowedFd<'a>,
    /// Where the child tells what went wrong: a byte, one of `TOLD_`, and an errno.
    pub(crate) told: BorrowedFd<'a>,
}

/// The filter could not be installed; the program is started without.
pub(crate) const TOLD_NO_FILTER: u8 = 1;

/// The program could not be started.
pub(crate) const TOLD_NO_PROGRAM: u8 = 2;

/// Makes a child that becomes the program once it is told to.
///
/// # Errors
///
/// As fork(2).
///
/// # Panics
///
/// If there is no word.
pub(crate) fn sow(seed: &Seed<'_>) -> Result<u32, Errno> {
    assert!(!seed.words.is_empty(), "no program");
    let mut words: Vec<*const c_char> = seed.words.iter().map(|word| word.as_ptr()).collect();
    words.push(std::ptr::null());
    // SAFETY: the child does nothing but `germinate`, which neither allocates nor takes a lock
    // that another thread could have held. Proved by `tests/trace.rs`.
    match unsafe { libc::fork() } {
        0 => germinate(seed, &words),
        child => u32::try_from(child).map_err(|_| last_errno()),
    }
}

/// The life of the child until it is another program.
fn germinate(seed: &Seed<'_>, words: &[*const c_char]) -> ! {
    let tell = |what: u8, errno: Errno| {
        let number = errno.raw_os_error().to_ne_bytes();
        let message = [what, number[0], number[1], number[2], number[3]];
        let fd = seed.told.as_raw_fd();
        // SAFETY: the message is its own; nobody is left to be told that it cannot be told.
        unsafe { libc::write(fd, message.as_ptr().cast(), message.len()) };
    };
    let mut byte = 0_u8;
    // SAFETY: only calls that are safe in a child of fork(2), with addresses of what the parent has
    // made ready before: `words` ends with a null pointer and its strings outlive this child's
    // borrow of them, the filter is copied by the kernel. Proved by `tests/trace.rs`.
    unsafe {
        // Rust ignores it for itself, and what is ignored stays so in the next program.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::close(seed.go_parent.as_raw_fd());
        if libc::read(seed.go.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(1);
        }
        if !seed.filter.is_empty()
            && let Err(errno) = install(seed.filter)
        {
            tell(TOLD_NO_FILTER, errno);
        }
        libc::execvp(words[0], words.as_ptr());
        tell(TOLD_NO_PROGRAM, last_errno());
        libc::_exit(127)
    }
}

/// Installs a filter of system calls for the calling thread.
fn install(filter: &[libc::sock_filter]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?,
        filter: filter.as_ptr().cast_mut(),
    };
    let seccomp = || {
        // SAFETY: the kernel copies the program, whose length was just taken from it. Proved by
        // `tests/trace.rs`.
        let result = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
        };
        if result < 0 { Err(last_errno()) } else { Ok(()) }
    };
    match seccomp() {
        // Without the privilege it takes a promise, which costs nothing: who is traced without
        // it gets no privileges from set-user-id programs anyway.
        Err(Errno::ACCESS) => {
            // SAFETY: this command takes numbers alone.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            seccomp()
        }
        done => done,
    }
}

/// A set of signals.
#[derive(Clone, Copy)]
pub(crate) struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// Those.
    pub(crate) fn new(signals: &[c_int]) -> Self {
        let mut set = std::mem::MaybeUninit::uninit();
        // SAFETY: sigemptyset(3) makes it a set, and sigaddset(3) refuses numbers that are none.
        // Proved by `tests/explain/ends.rs` of the program.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), *signal);
            }
            Self(set.assume_init())
        }
    }

    /// Has the calling thread, and those that it will start, not be interrupted by them.
    pub(crate) fn block(&self) {
        // SAFETY: it is a set. Proved by `tests/explain/ends.rs` of the program.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const self.0, std::ptr::null_mut()) };
    }

    /// Waits for one of them: which, and whether it came from the kernel, as from a terminal.
    ///
    /// # Errors
    ///
    /// As sigwaitinfo(2), but never `EINTR`, which comes whenever this process was stopped and goes
    /// on.
    pub(crate) fn wait(&self) -> Result<(c_int, bool), Errno> {
        loop {
            let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
            // SAFETY: the kernel fills the structure; a zeroed one is valid too. Proved by
            // `tests/explain/ends.rs` of the program.
            let (signal, info) = unsafe {
                let signal = libc::sigwaitinfo(&raw const self.0, info.as_mut_ptr());
                (signal, info.assume_init())
            };
            if signal >= 0 {
                return Ok((signal, info.si_code > 0));
            }
            match last_errno() {
                Errno::INTR => {}
                errno => return Err(errno),
            }
        }
    }
}

/// `PTRACE_GET_SYSCALL_INFO` of linux/ptrace.h, which not every libc names.
const GET_SYSCALL_INFO: c_uint = 0x420e;
