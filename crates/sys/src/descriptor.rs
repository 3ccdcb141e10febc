//! Requests about one descriptor: its close, shared blocks, the page cache, leases, and a socket's
//! queues and options.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use rustix::io::Errno;

use crate::last_errno;

/// Closes a descriptor as dropping it does, but returns the error.
///
/// # Errors
///
/// As close(2): errors of earlier writes, which network file systems and FUSE may report only here.
pub fn close(descriptor: OwnedFd) -> Result<(), Errno> {
    // SAFETY: the descriptor is owned, and nothing uses it afterwards, whatever the answer is.
    // Proved by
    // `cli/tests/transfer/fuse.rs::a_file_that_is_refused_at_the_close_gets_no_name`.
    let closed = unsafe { libc::close(descriptor.into_raw_fd()) };
    if closed == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Makes `len` bytes of `sink` at `sink_at` share the blocks of `source` at `source_at`.
///
/// # Errors
///
/// As ioctl_ficlonerange(2).
pub fn clone_range(
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
    request(sink, Ioctl::Clone(&mut range)).map(drop)
}

/// Returns how many bytes a socket has accepted that its peer has not acknowledged (SIOCOUTQ,
/// tcp(7)).
///
/// # Errors
///
/// As ioctl(2); `EINVAL` for a listening socket.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    queued(socket, SocketQueue::Unacknowledged)
}

/// Returns how many bytes a socket has accepted but not yet sent (SIOCOUTQNSD, tcp(7)).
///
/// # Errors
///
/// As ioctl(2); `EINVAL` for a listening socket, and for one that is not a TCP socket.
pub fn unsent(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    queued(socket, SocketQueue::Unsent)
}

fn queued(socket: BorrowedFd<'_>, queue: SocketQueue) -> Result<u64, Errno> {
    let mut bytes: c_int = 0;
    request(socket, Ioctl::Queued(queue, &mut bytes))?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Returns whether the next byte of a socket is an urgent one (SIOCATMARK, sockatmark(3)), which
/// read(2) skips and splice(2) does not. False for a socket without an urgent byte.
#[must_use]
pub fn is_at_mark(socket: BorrowedFd<'_>) -> bool {
    queued(socket, SocketQueue::AtMark) == Ok(1)
}

/// Takes a read lease on a file, which blocks processes that want to write until it is released.
///
/// The signal that the kernel sends when a lease breaks is set to `SIGURG`, which is ignored by
/// default; [`clear_lease_owner`] makes the kernel send none.
///
/// # Errors
///
/// As fcntl(2) for `F_SETLEASE`: `EAGAIN` if the file is open for writing, `EACCES` if it belongs
/// to another user and the process lacks `CAP_LEASE`.
pub fn take_read_lease(file: impl AsFd) -> Result<(), Errno> {
    fcntl(&file, F_SETSIG, libc::SIGURG)?;
    fcntl(&file, libc::F_SETLEASE, libc::F_RDLCK).map(drop)
}

/// Makes the kernel send no signal when the lease of this descriptor breaks.
///
/// # Errors
///
/// As fcntl(2) for `F_SETOWN`.
pub fn clear_lease_owner(file: impl AsFd) -> Result<(), Errno> {
    fcntl(file, libc::F_SETOWN, 0).map(drop)
}

/// Returns whether this descriptor holds a read lease for which no writer is waiting.
#[must_use]
pub fn has_read_lease(file: impl AsFd) -> bool {
    fcntl(file, libc::F_GETLEASE, 0) == Ok(libc::F_RDLCK)
}

/// Releases a lease.
///
/// # Errors
///
/// As fcntl(2) for `F_SETLEASE`; also if the kernel has revoked the lease.
pub fn release_lease(file: impl AsFd) -> Result<(), Errno> {
    fcntl(file, libc::F_SETLEASE, libc::F_UNLCK).map(drop)
}

fn fcntl(fd: impl AsFd, command: c_int, argument: c_int) -> Result<c_int, Errno> {
    request(fd.as_fd(), Ioctl::Fcntl(command, argument))
}

/// `F_SETSIG` of asm-generic/fcntl.h, which the libc crate leaves out.
const F_SETSIG: c_int = 10;

/// Returns how many bytes of `len` from `offset` the page cache holds, rounded up to whole pages.
///
/// # Errors
///
/// As cachestat(2), which exists since Linux 6.5: `EPERM` for a file that the caller neither owns
/// nor may write to, `ENOSYS` before.
pub fn cached(file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    let mut counts = CacheCounts::default();
    request(file, Ioctl::CacheStat(&CacheRange { offset, len }, &mut counts))?;
    Ok(counts.cached * rustix::param::page_size() as u64)
}

/// Returns how many bytes of `len` from `offset` in the page cache are dirty or being written
/// back, rounded up to whole pages.
///
/// # Errors
///
/// As [`cached`].
pub fn unwritten(file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    if len == 0 {
        // The kernel treats a length of 0 as up to the end.
        return Ok(0);
    }
    let mut counts = CacheCounts::default();
    request(file, Ioctl::CacheStat(&CacheRange { offset, len }, &mut counts))?;
    Ok((counts.dirty + counts.written_back) * rustix::param::page_size() as u64)
}

/// Writes the dirty pages of a file back and waits for that, without writing its metadata or
/// flushing the disk's cache (sync_file_range(2)).
///
/// # Errors
///
/// As sync_file_range(2).
pub fn write_back(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    request(file, Ioctl::WriteBack(flags)).map(drop)
}

/// Waits for pages of a file that are being written back, without starting to write others
/// (sync_file_range(2)).
///
/// # Errors
///
/// As sync_file_range(2): `EIO` or `ENOSPC` if earlier pages could not be written back, once.
pub fn await_write_back(file: BorrowedFd<'_>) -> Result<(), Errno> {
    request(file, Ioctl::WriteBack(libc::SYNC_FILE_RANGE_WAIT_BEFORE)).map(drop)
}

/// Limits the bytes that a socket sends per second (`SO_MAX_PACING_RATE`, socket(7)).
///
/// # Errors
///
/// As setsockopt(2).
pub fn set_pacing_rate(socket: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    set_option(socket, SocketOption::PacingRate, &bytes.to_ne_bytes())
}

/// Limits the bytes that a TCP socket accepts before sending them (`TCP_NOTSENT_LOWAT`, tcp(7)).
///
/// # Errors
///
/// As setsockopt(2).
pub fn set_unsent_limit(socket: BorrowedFd<'_>, bytes: u32) -> Result<(), Errno> {
    set_option(socket, SocketOption::UnsentLimit, &bytes.to_ne_bytes())
}

/// Sets an option of a socket to these bytes.
///
/// # Errors
///
/// As setsockopt(2).
pub fn set_option(socket: BorrowedFd<'_>, option: SocketOption, value: &[u8]) -> Result<(), Errno> {
    request(socket, Ioctl::SetOption(option, value)).map(drop)
}

/// Socket options whose values hold no address.
#[derive(Clone, Copy, Debug)]
pub enum SocketOption {
    /// `SO_MAX_PACING_RATE` of socket(7).
    PacingRate,
    /// `TLS_RX` of linux/tls.h.
    TlsReceive,
    /// `TLS_TX` of linux/tls.h.
    TlsSend,
    /// `TLS_TX_ZEROCOPY_RO` of linux/tls.h.
    TlsZeroCopy,
    /// `TCP_NOTSENT_LOWAT` of tcp(7).
    UnsentLimit,
    /// `TCP_ULP` of linux/tcp.h: the protocol on top of TCP.
    UpperLayer,
}

impl SocketOption {
    /// Returns the level and the name of the option.
    const fn number(self) -> (c_int, c_int) {
        match self {
            Self::PacingRate => (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
            Self::TlsReceive => (libc::SOL_TLS, libc::TLS_RX),
            Self::TlsSend => (libc::SOL_TLS, libc::TLS_TX),
            Self::TlsZeroCopy => (libc::SOL_TLS, libc::TLS_TX_ZEROCOPY_RO),
            Self::UnsentLimit => (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
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

/// A request to the kernel about one descriptor, with the argument type that it is defined for.
#[derive(Debug)]
enum Ioctl<'a> {
    CacheStat(&'a CacheRange, &'a mut CacheCounts),
    Clone(&'a mut libc::file_clone_range),
    Fcntl(c_int, c_int),
    Queued(SocketQueue, &'a mut c_int),
    SetOption(SocketOption, &'a [u8]),
    WriteBack(c_uint),
}

/// A queue property of a socket, by its request number in linux/sockios.h.
#[derive(Clone, Copy, Debug)]
enum SocketQueue {
    AtMark = 0x8905,
    Unacknowledged = libc::TIOCOUTQ as isize,
    Unsent = 0x894B,
}

/// Sends a request to the kernel.
fn request(fd: BorrowedFd<'_>, request: Ioctl<'_>) -> Result<c_int, Errno> {
    let fd = fd.as_raw_fd();
    // SAFETY: each arm pairs a request with the type that the kernel reads or writes for it, and
    // the kernel keeps no address. The commands of fcntl used here (F_SETLEASE, F_GETLEASE,
    // F_SETSIG, F_SETOWN) take no pointer, and neither does the value of any SocketOption. Proved
    // by `engine/tests/engine/file_systems.rs` (FICLONERANGE),
    // `engine/tests/engine/library.rs` (SIOCOUTQ, SO_MAX_PACING_RATE),
    // `engine/tests/engine/pipes.rs` (SIOCATMARK), `engine/tests/engine/confirm.rs` (cachestat,
    // SIOCOUTQNSD), `engine/tests/engine/integrity.rs` (fcntl), `engine/tests/engine/writers.rs`
    // (sync_file_range, whose arguments are numbers) and `engine/tests/ktls.rs` (the options of
    // TLS).
    let result = unsafe {
        match request {
            Ioctl::CacheStat(range, counts) => libc::syscall(
                SYS_CACHESTAT,
                fd,
                std::ptr::from_ref(range),
                std::ptr::from_mut(counts),
                0,
            ) as c_int,
            Ioctl::Clone(range) => libc::ioctl(fd, libc::FICLONERANGE, std::ptr::from_mut(range)),
            Ioctl::Fcntl(command, argument) => libc::fcntl(fd, command, argument),
            Ioctl::Queued(queue, bytes) => {
                libc::ioctl(fd, queue as libc::Ioctl, std::ptr::from_mut(bytes))
            }
            Ioctl::SetOption(option, value) => {
                let (level, name) = option.number();
                let len = value.len() as libc::socklen_t;
                libc::setsockopt(fd, level, name, value.as_ptr().cast::<c_void>(), len)
            }
            Ioctl::WriteBack(flags) => libc::sync_file_range(fd, 0, 0, flags),
        }
    };
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}

/// The number of cachestat(2), which is the same on every architecture except alpha; libc has it
/// only for some.
const SYS_CACHESTAT: libc::c_long = 451;
