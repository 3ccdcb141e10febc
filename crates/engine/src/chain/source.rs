//! The source of a transfer: where the bytes come from.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;
use underpass_sys::Kind;

use crate::integrity::Version;

/// Something that gives bytes: a file, a range of it, or a stream.
///
/// `F` borrows or owns the descriptor: `&File`, `Arc<File>`, `OwnedFd`.
#[derive(Clone, Debug)]
pub struct Source<F> {
    pub(crate) fd: F,
    pub(crate) kind: Kind,
    /// Offset of the first byte; `None` for a stream.
    pub(crate) at: Option<u64>,
    /// The promised length; `None` for all up to the end.
    pub(crate) len: Option<u64>,
    /// The file as it was when the length was promised.
    pub(crate) version: Option<Version>,
    /// Whether the file must also still have the name under which it was opened.
    pub(crate) is_in_place: bool,
    /// Whether the caller has made sure that the version shows every change.
    pub(crate) is_at_rest: bool,
    /// Whether versions are compared as cached by the kernel, without asking the file's server.
    pub(crate) is_remote: bool,
    /// The clone that was made of the file, or why there is none, see [`Chain::make_snapshots`].
    ///
    /// [`Chain::make_snapshots`]: crate::Chain::make_snapshots
    pub(crate) snapshot: Option<Result<Arc<OwnedFd>, Errno>>,
}

impl<F: AsFd> Source<F> {
    /// Creates a source of all that `fd` has: a file or a disk from its first byte to its present
    /// size, which becomes the promised length; a stream, another device or a file of procfs up to
    /// its end. The size of a disk is found by moving the cursor of `fd` to its end.
    ///
    /// # Errors
    ///
    /// `EISDIR` for a directory, `EINVAL` for a descriptor that cannot be read as bytes, and as
    /// fstat(2).
    pub fn of(fd: F) -> io::Result<Self> {
        let stat = fstat(&fd)?;
        let kind = Kind::of(&fd, &stat)?;
        let len = match kind {
            Kind::Regular => Some(u64::try_from(stat.st_size).unwrap_or(0)),
            Kind::Block => Some(seek(&fd, SeekFrom::End(0))?),
            _ => None,
        };
        let at = kind.is_seekable().then_some(0);
        let version = Some(Version::from_stat(&stat));
        Ok(Self { kind, at, len, version, ..Self::range(fd, 0, 0) })
    }

    /// Creates a source of `len` bytes of a regular file from `offset`, without inspecting the
    /// file: for callers who already have its metadata.
    pub fn range(fd: F, offset: u64, len: u64) -> Self {
        let (at, len) = (Some(offset), Some(len));
        Self {
            fd,
            kind: Kind::Regular,
            at,
            len,
            version: None,
            is_in_place: false,
            is_at_rest: false,
            is_remote: false,
            snapshot: None,
        }
    }

    /// Begins at `offset` instead of the first byte; `len` then counts from there.
    ///
    /// A stream has no offsets and is unaffected.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        if let Some(at) = &mut self.at {
            self.len = self.len.map(|len| (*at + len).saturating_sub(offset));
            *at = offset;
        }
        self
    }

    /// Promises exactly `len` bytes: fewer are an error, more are not read.
    #[must_use]
    pub fn len(mut self, len: u64) -> Self {
        self.len = Some(len);
        self
    }

    /// Sets the version that the file had when its metadata was read, for [`Integrity::Detect`] to
    /// compare with.
    ///
    /// [`Integrity::Detect`]: crate::Integrity::Detect
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.version = Some(version);
        self
    }

    /// Also treats the file as changed if it was replaced, renamed or removed: for callers that can
    /// still open its replacement.
    ///
    /// This is checked only for a small file that is copied together with the header before it,
    /// just before its first byte is moved, and only with [`Integrity::Detect`]. A transfer that
    /// has begun is better completed.
    ///
    /// [`Integrity::Detect`]: crate::Integrity::Detect
    #[must_use]
    pub fn in_place(mut self) -> Self {
        self.is_in_place = true;
        self
    }

    /// States that a [`WriterCheck`](crate::WriterCheck) of the caller found the file at rest in
    /// its [`version`](Self::version), so that the transfer need not check.
    #[must_use]
    pub fn stable(mut self) -> Self {
        self.is_at_rest = true;
        self
    }

    /// States that a server or another program provides the file, and that no step may wait for it:
    /// versions are compared as the kernel has them in memory, which the caller must keep up to
    /// date. No lease is taken and no clone is made, since both would open a file: these levels of
    /// integrity become [`Integrity::Detect`](crate::Integrity::Detect), and the caller has to make
    /// sure that the file is at rest.
    #[must_use]
    pub fn remote(mut self) -> Self {
        self.is_remote = true;
        self
    }

    /// Returns whether the file was stated to be [remote](Self::remote).
    pub const fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Returns the version to compare with the promised one.
    pub(crate) fn current_version(&self) -> io::Result<Version> {
        if self.is_remote { Version::in_memory(&self.fd) } else { Version::of(&self.fd) }
    }

    /// Returns what kind of descriptor the source is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the descriptor.
    pub const fn fd(&self) -> &F {
        &self.fd
    }

    /// Returns the offset of the first byte; `None` for a stream.
    pub const fn offset(&self) -> Option<u64> {
        self.at
    }

    /// Returns the promised number of bytes; `None` for all up to the source's end.
    pub fn promised(&self) -> Option<u64> {
        self.len
    }

    /// Returns offset and length, if this is a file range of at most `limit` bytes.
    pub(crate) fn small_range(&self, limit: usize) -> Option<(u64, usize)> {
        let len = self.len.and_then(|len| usize::try_from(len).ok()).filter(|&len| len <= limit)?;
        (self.kind == Kind::Regular).then_some((self.at?, len))
    }
}
