//! The contract between the one loop and the mechanisms.
//!
//! A mechanism does one bounded step and never waits; the loop owns order, counting, limits and
//! falling back. `docs/design.md` tells why the contract has this shape.

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use underpass_sys::Kind;

use crate::socket::tls_transport::{RecordKind, TlsTransport};

/// What one step of a mechanism did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Moved this many bytes into the sink.
    Moved(NonZeroUsize),
    /// The file is not in the version that was promised; nothing moved.
    Changed,
    /// Delivered this many bytes, which it already held when the kernel refused to take them on,
    /// by copying them through user space. It declines when it holds no more.
    Copied(NonZeroUsize, Refusal),
    /// The source has no more bytes.
    Eof,
    /// An end is not ready; nothing moved. Wait for it, then take the step again.
    NotReady(Wait),
    /// The kernel does not offer this mechanism for these two ends.
    ///
    /// Nothing moved and nothing is held, so the next mechanism starts at the same offset.
    Declined(Refusal),
}

impl Step {
    /// `Moved`, or `Eof` for the zero by which the kernel's calls tell it.
    pub(crate) fn moved(bytes: usize) -> Self {
        NonZeroUsize::new(bytes).map_or(Self::Eof, Self::Moved)
    }
}

/// What has to happen before the next step can move anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The peer's kernel has to acknowledge what was sent, and a peer on this machine to read it.
    /// No event tells: ask again after a moment.
    Acknowledgement,
    /// The sink has to become writable.
    Sink,
    /// The source has to become readable.
    Source,
    /// Somebody who may be writing to the file has to leave it alone. No event tells: ask again
    /// after a moment.
    Writer,
}

/// How the kernel said that it does not offer a mechanism here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// By an error.
    Errno(Errno),
    /// By claiming that nothing was left to move although the promised length was not reached,
    /// as copy_file_range(2) does on procfs and on some network and overlay file systems.
    Nothing,
}

impl Refusal {
    /// Returns the error's symbol such as `EINVAL`, a number for one that has none here, or `0`.
    #[must_use]
    pub fn name(self) -> std::borrow::Cow<'static, str> {
        match self {
            Self::Nothing => "0".into(),
            Self::Errno(errno) => crate::error::errno::name(errno),
        }
    }
}

/// The two ends of one step. Offsets are explicit wherever the end has any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    /// Where the bytes come from.
    pub(crate) source: BorrowedFd<'a>,
    /// What the source is.
    pub(crate) source_kind: Kind,
    /// Offset of the next byte, for a seekable source.
    pub(crate) source_at: Option<u64>,
    /// TLS on the source, which is a socket.
    pub(crate) source_tls: Option<&'a dyn TlsTransport>,
    /// Where the bytes go.
    pub(crate) sink: BorrowedFd<'a>,
    /// What the sink is.
    pub(crate) sink_kind: Kind,
    /// Offset of the next byte, for a seekable sink that was not opened with `O_APPEND`.
    pub(crate) sink_at: Option<u64>,
    /// TLS on the sink, which is a socket.
    pub(crate) sink_tls: Option<&'a dyn TlsTransport>,
    /// Bytes of this segment that are still to be moved, `None` for all up to the source's end.
    pub(crate) rest: Option<u64>,
    /// Whether another segment follows.
    pub(crate) is_followed: bool,
}

impl Ends<'_> {
    /// Returns whether more bytes are certain to follow when this step has moved `len`, so that a
    /// socket should wait for them and send full segments.
    pub(crate) fn is_more_after(&self, len: usize) -> bool {
        self.is_followed || self.rest.is_some_and(|rest| rest > len as u64)
    }

    /// Returns whether bytes have to be encrypted or decrypted in this process, which no
    /// mechanism of the kernel can do.
    pub(crate) fn cross_user_space(&self) -> bool {
        [self.source_tls, self.sink_tls].iter().flatten().any(|tls| !tls.is_in_kernel())
    }

    /// Returns what a call that takes from the source really said, if the kernel decrypts what is
    /// there: a record that holds no data makes it fail, and an end means little unless the peer
    /// said so.
    ///
    /// `EINTR` stands for a record that has been dealt with: nothing moved, try again.
    pub(crate) fn past_records(&self, answer: Result<usize, Errno>) -> Result<usize, Errno> {
        let Some(tls) = self.source_tls else { return answer };
        if !matches!(answer, Ok(0) | Err(Errno::INVAL | Errno::IO | Errno::KEYEXPIRED)) {
            return answer;
        }
        match tls.take_control(self.source)? {
            RecordKind::Control => Err(Errno::INTR),
            RecordKind::End => Ok(0),
            RecordKind::Data if answer == Ok(0) => Err(Errno::CONNABORTED),
            RecordKind::Data => answer,
        }
    }

    /// Returns which end was not ready for a call between the two, after it answered `EAGAIN`. A
    /// wrong guess costs one more turn, not a byte.
    pub(crate) fn unready(&self) -> Wait {
        if self.source_kind.can_wait() && !is_readable(self.source) {
            Wait::Source
        } else {
            Wait::Sink
        }
    }
}

/// Returns whether a read would find bytes or an end right now.
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ready, Some(&now)).is_ok_and(|count| count > 0)
}
