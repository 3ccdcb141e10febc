//! The only unsafe code: system calls that rustix leaves out or cannot make safe.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;

use crate::kind::Kind;
use crate::usage::Usage;

/// A part of a file mapped read-only, of which nobody but the kernel ever sees more than the
/// address: no reference into it is formed, so another process may change or truncate the file.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// A number, not a pointer: nobody here may follow it, and a number can go to any thread.
    address: usize,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset`, which must be a multiple of the page size.
    ///
    /// # Errors
    ///
    /// As mmap(2).
    pub(crate) fn new(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, Errno> {
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        // Proved by `tests/matrix.rs`, which sends by mmap from every kind of source.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(last_errno());
        }
        Ok(Self { address: address.expose_provenance(), len })
    }

    /// Writes the `len` bytes from `start` of the mapping to `sink`: at `at` if it is seekable,
    /// otherwise with `more` telling a socket to wait for the next ones.
    ///
    /// # Errors
    ///
    /// As pwrite(2), write(2) and send(2); `EFAULT` if the file has become shorter.
    ///
    /// # Panics
    ///
    /// If the range is not inside the mapping.
    pub(crate) fn write(
        &self,
        start: usize,
        len: usize,
        sink: BorrowedFd<'_>,
        to: Destination,
    ) -> Result<usize, Errno> {
        assert!(start <= self.len && len <= self.len - start, "range outside of the mapping");
        let fd = sink.as_raw_fd();
        let address = std::ptr::with_exposed_provenance::<c_void>(self.address + start);
        // SAFETY: the range was just checked to lie inside the mapping, which lives as long as
        // `self`. Only the kernel reads it, and it answers EFAULT where the file has no page any
        // more. Proved by `tests/interrupted.rs::source_truncated_while_mapped`.
        let written = unsafe {
            match to {
                Destination::Offset(at) => libc::pwrite64(fd, address, len, at.cast_signed()),
                Destination::Stream => libc::write(fd, address, len),
                Destination::Socket { more } => libc::send(fd, address, len, send_flags(more)),
            }
        };
        usize::try_from(written).map_err(|_| last_errno())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping made in `new`, which no reference
        // points into and which is not used again. Proved by
        // `tests/interrupted.rs::mappings_do_not_pile_up`.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.address), self.len) };
    }
}

/// How a sink takes bytes from memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Destination {
    /// At this offset, by pwrite(2).
    Offset(u64),
    /// By send(2), with or without `MSG_MORE`.
    Socket {
        /// Whether more bytes follow.
        more: bool,
    },
    /// By write(2).
    Stream,
}

impl Destination {
    /// How a sink of this kind takes bytes whose place is `at`.
    pub(crate) fn new(kind: Kind, at: Option<u64>, more: bool) -> Self {
        match (kind, at) {
            (Kind::Socket, _) => Self::Socket { more },
            (_, Some(at)) => Self::Offset(at),
            (_, None) => Self::Stream,
        }
    }
}

fn send_flags(more: bool) -> c_int {
    libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 }
}

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
    let mut bytes: c_int = 0;
    request(socket, Request::Unacknowledged(&mut bytes))?;
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

/// Sets how many bytes a second a socket sends at the most (`SO_MAX_PACING_RATE`, socket(7)).
///
/// # Errors
///
/// As setsockopt(2).
pub(crate) fn set_pacing_rate(socket: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    request(socket, Request::SetPacingRate(&bytes)).map(drop)
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
    SetPacingRate(&'a u64),
    Unacknowledged(&'a mut c_int),
}

/// Puts a question to the kernel.
fn request(fd: BorrowedFd<'_>, request: Request<'_>) -> Result<c_int, Errno> {
    let fd = fd.as_raw_fd();
    // SAFETY: each arm pairs a request with the type that the kernel reads or writes for it, and
    // the kernel keeps no address. The commands of fcntl used here (F_SETLEASE, F_GETLEASE,
    // F_SETSIG, F_SETOWN) take no pointer. Proved by `tests/file_systems.rs` (FICLONERANGE),
    // `tests/library.rs` (SIOCOUTQ), `tests/confirm.rs` (cachestat),
    // `tests/library.rs` (SO_MAX_PACING_RATE) and `tests/integrity.rs` (fcntl).
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
            Request::SetPacingRate(bytes) => libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_MAX_PACING_RATE,
                std::ptr::from_ref(bytes).cast::<c_void>(),
                size_of::<u64>() as libc::socklen_t,
            ),
            Request::Unacknowledged(bytes) => {
                libc::ioctl(fd, libc::TIOCOUTQ, std::ptr::from_mut(bytes))
            }
        }
    };
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}

/// The number of cachestat(2), the same on every architecture but alpha; libc has it only for some.
const SYS_CACHESTAT: libc::c_long = 451;

/// What the calling thread has spent, from getrusage(2).
pub(crate) fn thread_usage() -> Usage {
    let mut raw = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure; a zeroed one is valid too, so that a failure, which
    // getrusage(2) has none of for these arguments, would read as no usage. Proved by
    // `tests/library.rs::usage_grows_with_work`.
    let raw = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, raw.as_mut_ptr());
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

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
