//! A part of a file in the address space, which only the kernel reads.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::Kind;
use crate::last_errno;

/// A part of a file mapped read-only. Only the kernel reads it; this process keeps just the
/// address and forms no reference into it, so another process may change or truncate the file.
#[derive(Debug)]
pub struct Mapping {
    /// A number, not a pointer: it is never dereferenced here, and a number is `Send`.
    address: usize,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset`, which must be a multiple of the page size.
    ///
    /// # Errors
    ///
    /// As mmap(2).
    pub fn new(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, Errno> {
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        // Proved by `engine/tests/engine/matrix.rs`, which sends by mmap from every kind of source.
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

    /// Writes the `len` bytes from `start` of the mapping to `sink`: at `at` if it is seekable;
    /// otherwise `more` makes a socket wait for the next bytes.
    ///
    /// # Errors
    ///
    /// As pwrite(2), write(2) and send(2); `EFAULT` if the file has become shorter.
    ///
    /// # Panics
    ///
    /// If the range is not inside the mapping.
    pub fn write(
        &self,
        start: usize,
        len: usize,
        sink: BorrowedFd<'_>,
        to: MappedSink,
    ) -> Result<usize, Errno> {
        assert!(start <= self.len && len <= self.len - start, "range outside of the mapping");
        let fd = sink.as_raw_fd();
        let address = std::ptr::with_exposed_provenance::<c_void>(self.address + start);
        // SAFETY: the range was just checked to lie inside the mapping, which lives as long as
        // `self`. Only the kernel reads it, and returns EFAULT where the file no longer has a page.
        // Proved by
        // `engine/tests/engine/interrupted.rs::a_source_truncated_while_mapped_is_an_error`.
        let written = unsafe {
            match to {
                MappedSink::Offset(at) => libc::pwrite64(fd, address, len, at.cast_signed()),
                MappedSink::Stream => libc::write(fd, address, len),
                MappedSink::Socket { more } => libc::send(fd, address, len, send_flags(more)),
            }
        };
        usize::try_from(written).map_err(|_| last_errno())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping made in `new`, which no reference
        // points into and which is not used again. Proved by
        // `engine/tests/engine/interrupted.rs::mappings_are_removed_after_each_transfer`.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.address), self.len) };
    }
}

/// How a sink is written to from memory.
#[derive(Clone, Copy, Debug)]
pub enum MappedSink {
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

impl MappedSink {
    /// Returns how a sink of this kind is written to at the offset `at`.
    #[must_use]
    pub fn new(kind: Kind, at: Option<u64>, more: bool) -> Self {
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
