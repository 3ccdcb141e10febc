//! Where bytes come from.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, fstat, seek};
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
    /// Whether the file must be where it was opened, too.
    pub(crate) is_in_place: bool,
    /// Whether the caller has seen to it that the version tells each change.
    pub(crate) is_at_rest: bool,
}

impl<F: AsFd> Source<F> {
    /// Returns all that `fd` has: a file from its first byte to its present size, which becomes a
    /// promise; a stream, a device or a file of procfs up to its end.
    ///
    /// # Errors
    ///
    /// `EISDIR` for a directory, `EINVAL` for what cannot be read as bytes, and as fstat(2).
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
        Ok(Self { fd, kind, at, len, version, is_in_place: false, is_at_rest: false })
    }

    /// `len` bytes of a regular file from `offset`, without looking at the file: for callers who
    /// have its facts already.
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
        }
    }

    /// From `offset` on instead of the first byte; `len` then counts from there.
    ///
    /// A stream has no offsets and is left as it is.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        if let Some(at) = &mut self.at {
            self.len = self.len.map(|len| (*at + len).saturating_sub(offset));
            *at = offset;
        }
        self
    }

    /// Promises exactly `len` bytes: fewer are an error, more are left where they are.
    #[must_use]
    pub fn len(mut self, len: u64) -> Self {
        self.len = Some(len);
        self
    }

    /// The file as it was when its facts were read, for [`Integrity::Detect`] to compare with.
    ///
    /// [`Integrity::Detect`]: crate::Integrity::Detect
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.version = Some(version);
        self
    }

    /// Counts it as a change, too, if the file was replaced, renamed or removed: for those who can
    /// still open what has taken its place.
    ///
    /// Only a small file that is copied with what stands before it is looked at so closely, just
    /// before its first byte is moved, and only with [`Integrity::Detect`]. One that is under way is
    /// better sent to its end.
    ///
    /// [`Integrity::Detect`]: crate::Integrity::Detect
    #[must_use]
    pub fn in_place(mut self) -> Self {
        self.is_in_place = true;
        self
    }

    /// The caller has had a [`WriterCheck`](crate::WriterCheck) say that the file is at rest in its
    /// [`version`](Self::version), so that the transfer need not.
    #[must_use]
    pub fn at_rest(mut self) -> Self {
        self.is_at_rest = true;
        self
    }

    /// Returns what the source is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the descriptor.
    pub const fn fd(&self) -> &F {
        &self.fd
    }

    /// Returns where in the file the first byte is; `None` for a stream.
    pub const fn offset(&self) -> Option<u64> {
        self.at
    }

    /// Returns how many bytes are promised; `None` for all up to the source's end.
    pub fn promised(&self) -> Option<u64> {
        self.len
    }

    /// Offset and length, if this is a file range of at most `limit` bytes.
    pub(crate) fn small_range(&self, limit: usize) -> Option<(u64, usize)> {
        let len = self.len.and_then(|len| usize::try_from(len).ok()).filter(|&len| len <= limit)?;
        (self.kind == Kind::Regular).then_some((self.at?, len))
    }
}
