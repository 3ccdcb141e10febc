//! The only unsafe code: system calls that rustix leaves out or cannot make safe.

mod features;
mod mapping;
mod record;
mod trace;

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

use crate::usage::Usage;

pub(crate) use features::{Features, features};
pub(crate) use mapping::{Destination, Mapping};
pub(crate) use record::{receive_record, send_record};
pub(crate) use trace::{
    CallInfo, Seed, SignalSet, TOLD_NO_FILTER, TOLD_NO_PROGRAM, TraceRequest, sow, trace,
    wait_for_any,
};

/// Makes `len` bytes of `sink` at `sink_at` share the blocks of `source` at `source_at`.
///
/// # Errors
///
/// As ioctl_ficlonerange(2).
pub(crate) fn clone_range(
    source: BorrowedFd<'_>,
    source_at: u64,
    len: u64,
    sink: BorrowedFd<'_>,
    sink_at: u64,
) -> Result<(), Errno> {
    let mut range = libc::file_clone_range {
        src_fd: source.as_raw_fd().into(),
        src_offset: source_at,
        src_length: len,
        dest_offset: sink_at,
    };
    request(sink, Request::Clone(&mut range)).map(drop)
}

/// How many bytes a socket has taken that its peer has not acknowledged (SIOCOUTQ, tcp(7)).
///
/// # Errors
///
/// As ioctl(2); `EINVAL` for a listening socket.
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    queued(socket, Queue::Unacknowledged)
}

/// How many of them it has not even sent (SIOCOUTQNSD, tcp(7)).
///
/// # Errors
///
/// As ioctl(2); `EINVAL` for a listening socket, and what is no socket of TCP.
pub(crate) fn unsent(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    queued(socket, Queue::Unsent)
}

fn queued(socket: BorrowedFd<'_>, queue: Queue) -> Result<u64, Errno> {
    let mut bytes: c_int = 0;
    request(socket, Request::Queued(queue, &mut bytes))?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// fcntl(2) for a command whose argument is a number.
///
/// # Errors
///
/// As fcntl(2).
pub(crate) fn fcntl(fd: impl AsFd, command: c_int, argument: c_int) -> Result<c_int, Errno> {
    request(fd.as_fd(), Request::Fcntl(command, argument))
}

/// How many bytes of `len` from `offset` the page cache holds, rounded up to whole pages.
///
/// # Errors
///
/// As cachestat(2), which exists since Linux 6.5: `EPERM` for a file that the caller neither owns
/// nor may write to, `ENOSYS` before.
pub(crate) fn cached(file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    let mut counts = CacheCounts::default();
    request(file, Request::CacheStat(&CacheRange { offset, len }, &mut counts))?;
    Ok(counts.cached * rustix::param::page_size() as u64)
}

/// How many bytes of `len` from `offset` in the page cache are dirty or being written back, rounded
/// up to whole pages.
///
/// # Errors
///
/// As [`cached`].
pub(crate) fn unwritten(file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    if len == 0 {
        // To the kernel that means up to the end.
        return Ok(0);
    }
    let mut counts = CacheCounts::default();
    request(file, Request::CacheStat(&CacheRange { offset, len }, &mut counts))?;
    Ok((counts.dirty + counts.written_back) * rustix::param::page_size() as u64)
}

/// Writes the dirty pages of a file back and waits for it, without the facts of the file and
/// without emptying the disk's cache (sync_file_range(2)).
///
/// # Errors
///
/// As sync_file_range(2).
pub(crate) fn write_back(file: BorrowedFd<'_>) -> Result<(), Errno> {
    request(file, Request::WriteBack).map(drop)
}

/// Sets how many bytes a second a socket sends at the most (`SO_MAX_PACING_RATE`, socket(7)).
///
/// # Errors
///
/// As setsockopt(2).
pub(crate) fn set_pacing_rate(socket: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    set_option(socket, SocketOption::PacingRate, &bytes.to_ne_bytes())
}

/// Sets an option of a socket whose value is so many bytes.
///
/// # Errors
///
/// As setsockopt(2).
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    option: SocketOption,
    value: &[u8],
) -> Result<(), Errno> {
    request(socket, Request::SetOption(option, value)).map(drop)
}

/// Options of sockets whose values hold no address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SocketOption {
    /// `SO_MAX_PACING_RATE` of socket(7).
    PacingRate,
    /// `TLS_RX` of linux/tls.h.
    TlsReceive,
    /// `TLS_TX` of linux/tls.h.
    TlsSend,
    /// `TLS_TX_ZEROCOPY_RO` of linux/tls.h.
    TlsZeroCopy,
    /// `TCP_ULP` of linux/tcp.h: the protocol on top of TCP.
    UpperLayer,
}

impl SocketOption {
    /// Level and name.
    const fn number(self) -> (c_int, c_int) {
        match self {
            Self::PacingRate => (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
            Self::TlsReceive => (libc::SOL_TLS, libc::TLS_RX),
            Self::TlsSend => (libc::SOL_TLS, libc::TLS_TX),
            Self::TlsZeroCopy => (libc::SOL_TLS, libc::TLS_TX_ZEROCOPY_RO),
            Self::UpperLayer => (libc::IPPROTO_TCP, libc::TCP_ULP),
        }
    }
}

/// `cachestat_range` of linux/mman.h.
#[derive(Debug)]
#[repr(C)]
struct CacheRange {
    offset: u64,
    len: u64,
}

/// `cachestat` of linux/mman.h, in pages.
#[derive(Debug, Default)]
#[repr(C)]
struct CacheCounts {
    cached: u64,
    dirty: u64,
    written_back: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// A question to the kernel about one descriptor, with the argument it is defined for.
#[derive(Debug)]
enum Request<'a> {
    CacheStat(&'a CacheRange, &'a mut CacheCounts),
    Clone(&'a mut libc::file_clone_range),
    Fcntl(c_int, c_int),
    Queued(Queue, &'a mut c_int),
    SetOption(SocketOption, &'a [u8]),
    WriteBack,
}

/// Bytes that a socket has taken, by their number in linux/sockios.h.
#[derive(Clone, Copy, Debug)]
enum Queue {
    Unacknowledged = libc::TIOCOUTQ as isize,
    Unsent = 0x894B,
}

/// Puts a question to the kernel.
fn request(fd: BorrowedFd<'_>, request: Request<'_>) -> Result<c_int, Errno> {
    let fd = fd.as_raw_fd();
    // SAFETY: each arm pairs a request with the type that the kernel reads or writes for it, and
    // the kernel keeps no address. The commands of fcntl used here (F_SETLEASE, F_GETLEASE,
    // F_SETSIG, F_SETOWN) take no pointer, and neither does the value of any SocketOption. Proved
    // by `tests/file_systems.rs` (FICLONERANGE), `tests/library.rs` (SIOCOUTQ,
    // SO_MAX_PACING_RATE), `tests/confirm.rs` (cachestat, SIOCOUTQNSD), `tests/integrity.rs`
    // (fcntl), `tests/writers.rs` (sync_file_range, whose arguments are numbers) and
    // `tests/ktls.rs` (the options of TLS).
    let result = unsafe {
        match request {
            Request::CacheStat(range, counts) => libc::syscall(
                SYS_CACHESTAT,
                fd,
                std::ptr::from_ref(range),
                std::ptr::from_mut(counts),
                0,
            ) as c_int,
            Request::Clone(range) => libc::ioctl(fd, libc::FICLONERANGE, std::ptr::from_mut(range)),
            Request::Fcntl(command, argument) => libc::fcntl(fd, command, argument),
            Request::Queued(queue, bytes) => {
                libc::ioctl(fd, queue as libc::Ioctl, std::ptr::from_mut(bytes))
            }
            Request::SetOption(option, value) => {
                let (level, name) = option.number();
                let len = value.len() as libc::socklen_t;
                libc::setsockopt(fd, level, name, value.as_ptr().cast::<c_void>(), len)
            }
            Request::WriteBack => libc::sync_file_range(
                fd,
                0,
                0,
                libc::SYNC_FILE_RANGE_WAIT_BEFORE
                    | libc::SYNC_FILE_RANGE_WRITE
                    | libc::SYNC_FILE_RANGE_WAIT_AFTER,
            ),
        }
    };
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}

/// The number of cachestat(2), the same on every architecture but alpha; libc has it only for some.
const SYS_CACHESTAT: libc::c_long = 451;

/// Whose usage is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spender {
    /// The calling thread.
    Thread,
    /// The children that were waited for, theirs included.
    Children,
}

/// What somebody has spent, from getrusage(2).
pub(crate) fn usage(spender: Spender) -> Usage {
    let spender = match spender {
        Spender::Thread => libc::RUSAGE_THREAD,
        Spender::Children => libc::RUSAGE_CHILDREN,
    };
    let mut raw = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure; a zeroed one is valid too, so that a failure, which
    // getrusage(2) has none of for these arguments, would read as no usage. Proved by
    // `tests/library.rs::usage_grows_with_work`.
    let raw = unsafe {
        libc::getrusage(spender, raw.as_mut_ptr());
        raw.assume_init()
    };
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    let time = |value: libc::timeval| {
        Duration::from_secs(count(value.tv_sec)) + Duration::from_micros(count(value.tv_usec))
    };
    Usage {
        user: time(raw.ru_utime),
        system: time(raw.ru_stime),
        voluntary_switches: count(raw.ru_nvcsw),
        involuntary_switches: count(raw.ru_nivcsw),
        minor_faults: count(raw.ru_minflt),
        major_faults: count(raw.ru_majflt),
    }
}

/// Processor time that all threads of a process have spent, also those that have ended, and also of
/// a process that has ended but for which nobody has waited yet.
///
/// # Errors
///
/// As clock_getcpuclockid(3) and clock_gettime(2): `ESRCH` or `EINVAL` if there is no such process.
pub(crate) fn process_time(pid: u32) -> Result<Duration, Errno> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
    let mut clock: libc::clockid_t = 0;
    let mut spent = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both functions fill in the one structure that they are given, which outlives them.
    // Proved by `tests/library.rs::the_time_of_a_process_has_all_of_its_threads_in_it`.
    let (found, read) = unsafe {
        let found = libc::clock_getcpuclockid(pid, &raw mut clock);
        (found, if found == 0 { libc::clock_gettime(clock, &raw mut spent) } else { 0 })
    };
    match (found, read) {
        (0, 0) => Ok(Duration::new(
            u64::try_from(spent.tv_sec).unwrap_or(0),
            u32::try_from(spent.tv_nsec).unwrap_or(0),
        )),
        // It returns its error instead of leaving it in errno.
        (0, _) => Err(last_errno()),
        (error, _) => Err(Errno::from_raw_os_error(error)),
    }
}

/// Makes the smallest ring of io_uring, and lets it go.
///
/// # Errors
///
/// As io_uring_setup(2).
pub(crate) fn make_ring() -> Result<(), Errno> {
    let mut parameters = [0_u64; RING_PARAMETERS];
    // SAFETY: zeros are valid for each field of `io_uring_params`, which the kernel reads and fills
    // in during the call. The number it returns is a descriptor of ours that nobody else knows.
    // Proved by `tests/library.rs::what_a_machine_offers_is_asked_for`.
    let ring = unsafe {
        let ring = libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr());
        if ring < 0 {
            return Err(last_errno());
        }
        OwnedFd::from_raw_fd(ring as c_int)
    };
    drop(ring);
    Ok(())
}

/// `io_uring_params` of linux/io_uring.h in words of 8 bytes: 120 bytes.
const RING_PARAMETERS: usize = 15;

/// The version of Landlock that the kernel has.
///
/// # Errors
///
/// As landlock_create_ruleset(2).
pub(crate) fn landlock_version() -> Result<u32, Errno> {
    let none = std::ptr::null::<c_void>();
    // SAFETY: with this flag the call takes no address and makes nothing. Proved by
    // `tests/library.rs::what_a_machine_offers_is_asked_for`.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, LANDLOCK_VERSION)
    };
    u32::try_from(version).map_err(|_| last_errno())
}

/// `LANDLOCK_CREATE_RULESET_VERSION` of linux/landlock.h.
const LANDLOCK_VERSION: u32 = 1;

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
