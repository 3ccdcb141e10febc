//! The contract between the transfer's loop and the mechanisms.
//!
//! A mechanism takes one bounded step and never waits; the loop decides order, counting, limits
//! and fallback. `docs/design.md` explains why the contract has this shape.

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use underpass_sys::Kind;

use crate::socket::tls_transport::{RecordKind, TlsTransport};

/// The result of one step of a mechanism.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Moved this many bytes into the sink.
    Moved(NonZeroUsize),
    /// The file is not in the promised version; nothing moved.
    Changed,
    /// Delivered this many bytes, which it already held when the kernel refused to move them on,
    /// by copying them through user space. It declines once it holds no more.
    Copied(NonZeroUsize, DeclineReason),
    /// The source has no more bytes.
    Eof,
    /// An end is not ready; nothing moved. Wait for it, then repeat the step.
    NotReady(Wait),
    /// The kernel does not offer this mechanism for these two ends.
    ///
    /// Nothing moved and nothing is held, so the next mechanism starts at the same offset.
    Declined(DeclineReason),
}

impl Step {
    /// Returns `Moved`, or `Eof` for 0, by which the kernel's calls report the end.
    pub(crate) fn moved(bytes: usize) -> Self {
        NonZeroUsize::new(bytes).map_or(Self::Eof, Self::Moved)
    }
}

/// What has to happen before the next step can move anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The peer's kernel has to acknowledge what was sent; a peer on this machine has to read it.
    /// No event reports this: check again after a moment.
    Acknowledgement,
    /// The sink has to become writable.
    Sink,
    /// The source has to become readable.
    Source,
    /// A process that may be writing to the file has to stop. No event reports this: check again
    /// after a moment.
    Writer,
}

/// The reason why a mechanism was declined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclineReason {
    /// The call failed with this error.
    Errno(Errno),
    /// The call returned 0 although the promised length was not reached. copy_file_range(2) does so
    /// on procfs and on some network and overlay file systems, sendfile(2) and splice(2) on FUSE,
    /// and splice(2) before an urgent byte of TCP.
    Nothing,
    /// The caller excluded it ([`Options::unshared`](crate::Options::unshared)); no call was made.
    Excluded,
    /// This process encrypts (TLS in user space); no call was made.
    UserSpaceTls,
    /// An end has no offset, or lacks another property that the mechanism needs; no call was made.
    UnsuitableEnds,
}

impl DeclineReason {
    /// Returns the error's symbol such as `EINVAL`, or its number if it has no symbol here;
    /// otherwise `0`, `excluded`, `user_space_tls` or `unsuitable_ends`.
    #[must_use]
    pub fn name(self) -> std::borrow::Cow<'static, str> {
        match self {
            Self::Nothing => "0".into(),
            Self::Excluded => "excluded".into(),
            Self::UserSpaceTls => "user_space_tls".into(),
            Self::UnsuitableEnds => "unsuitable_ends".into(),
            Self::Errno(errno) => crate::error::errno::name(errno),
        }
    }

    /// Explains why no call was made; `None` if one was, or if the caller excluded it.
    pub(crate) const fn meaning(self) -> Option<&'static str> {
        match self {
            Self::UserSpaceTls => Some("bytes have to pass through TLS of this process"),
            Self::UnsuitableEnds => {
                Some("an end is a stream, opened with O_APPEND, or not a regular file")
            }
            Self::Errno(_) | Self::Nothing | Self::Excluded => None,
        }
    }
}

/// The two ends of one step. Offsets are explicit wherever an end has any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    /// The descriptor of the source.
    pub(crate) source: BorrowedFd<'a>,
    /// The kind of the source.
    pub(crate) source_kind: Kind,
    /// Offset of the next byte, for a seekable source.
    pub(crate) source_at: Option<u64>,
    /// TLS on the source, if it is a socket.
    pub(crate) source_tls: Option<&'a dyn TlsTransport>,
    /// The descriptor of the sink.
    pub(crate) sink: BorrowedFd<'a>,
    /// The kind of the sink.
    pub(crate) sink_kind: Kind,
    /// Offset of the next byte, for a seekable sink that was not opened with `O_APPEND`.
    pub(crate) sink_at: Option<u64>,
    /// TLS on the sink, if it is a socket.
    pub(crate) sink_tls: Option<&'a dyn TlsTransport>,
    /// The remaining bytes of this segment; `None` for all up to the source's end.
    pub(crate) rest: Option<u64>,
    /// Whether another segment follows.
    pub(crate) is_followed: bool,
}

impl Ends<'_> {
    /// Returns whether more bytes are certain to follow once this step has moved `len`, so that a
    /// socket should wait for them and send full segments.
    pub(crate) fn is_more_after(&self, len: usize) -> bool {
        self.is_followed || self.rest.is_some_and(|rest| rest > len as u64)
    }

    /// Returns whether this process has to encrypt or decrypt the bytes, which no mechanism of
    /// the kernel can do.
    pub(crate) fn cross_user_space(&self) -> bool {
        [self.source_tls, self.sink_tls].iter().flatten().any(|tls| !tls.is_in_kernel())
    }

    /// Corrects the result of a call on a source whose records the kernel decrypts: a record
    /// without data makes the call fail, and an end counts only if the peer announced it.
    ///
    /// `EINTR` means that a control record was handled: nothing moved, try again.
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

    /// Returns whether the source is at an urgent byte of TCP: splice(2) never passes it, and
    /// reports that nothing is there or, once the peer has closed, that this is the end.
    pub(crate) fn is_before_urgent(&self) -> bool {
        self.source_kind == Kind::Socket
            && self.source_tls.is_none()
            && underpass_sys::is_at_mark(self.source)
    }

    /// Returns which end was not ready for a call between the two that returned `EAGAIN`. A wrong
    /// guess costs one more step, not a byte.
    pub(crate) fn unready(&self) -> Wait {
        if self.source_kind.can_wait() && !is_readable(self.source) {
            Wait::Source
        } else {
            Wait::Sink
        }
    }
}

/// Returns whether a read would return bytes or an end right now.
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ready, Some(&now)).is_ok_and(|count| count > 0)
}
