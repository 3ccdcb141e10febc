//! What is moved: bytes in memory and ranges of files and streams, as one thought.
//!
//! Linux has no vectored sendfile. A chain is the answer: header, file, boundary, file, trailer go
//! out in order, packed into full segments, without one byte of a file surfacing.

use std::borrow::Cow;
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
    /// All that `fd` has: a file from its first byte to its present size, which becomes a
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

    /// What the source is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The descriptor.
    pub const fn fd(&self) -> &F {
        &self.fd
    }

    /// Where in the file the first byte is; `None` for a stream.
    pub const fn offset(&self) -> Option<u64> {
        self.at
    }

    /// How many bytes are promised; `None` for all up to the source's end.
    pub fn promised(&self) -> Option<u64> {
        self.len
    }

    /// Offset and length, if this is a file range of at most `limit` bytes.
    pub(crate) fn small_range(&self, limit: usize) -> Option<(u64, usize)> {
        let len = self.len.and_then(|len| usize::try_from(len).ok()).filter(|&len| len <= limit)?;
        (self.kind == Kind::Regular).then_some((self.at?, len))
    }
}

/// One part of a [`Chain`].
#[derive(Clone, Debug)]
pub enum Segment<F> {
    /// Bytes in memory: a header, a boundary, padding.
    Bytes(Cow<'static, [u8]>),
    /// Bytes of the payload that had to be read into memory before, such as those that came in one
    /// piece with the header in front of them. They have crossed into user space and cross back.
    Payload(Cow<'static, [u8]>),
    /// A file, a range of it, or a stream.
    Source(Source<F>),
}

impl<F> Segment<F> {
    /// How many bytes it has, if that is known beforehand.
    pub(crate) fn len(&self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) | Self::Payload(bytes) => Some(bytes.len() as u64),
            Self::Source(source) => source.len,
        }
    }
}

/// Segments that are moved one after the other, as one transfer.
///
/// ```
/// use underpass_engine::{Chain, Source};
/// # let file = std::fs::File::open("/proc/self/exe")?;
/// let chain = Chain::new()
///     .bytes(&b"first the header, "[..])
///     .source(Source::of(&file)?.at(100).len(20))
///     .bytes(b", then the trailer".to_vec());
/// assert_eq!(chain.len(), Some(18 + 20 + 18));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Chain<F> {
    pub(crate) segments: Vec<Segment<F>>,
}

impl<F: AsFd> Chain<F> {
    /// No segments yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { segments: Vec::new() }
    }

    /// Adds bytes in memory at the end.
    #[must_use]
    pub fn bytes(mut self, bytes: impl Into<Cow<'static, [u8]>>) -> Self {
        self.segments.push(Segment::Bytes(bytes.into()));
        self
    }

    /// Adds bytes of the payload that were read already, see [`Segment::Payload`]; nothing if there
    /// are none.
    #[must_use]
    pub fn payload(mut self, bytes: impl Into<Cow<'static, [u8]>>) -> Self {
        let bytes = bytes.into();
        if !bytes.is_empty() {
            self.segments.push(Segment::Payload(bytes));
        }
        self
    }

    /// Adds a source at the end.
    #[must_use]
    pub fn source(mut self, source: Source<F>) -> Self {
        self.segments.push(Segment::Source(source));
        self
    }

    /// How many bytes the chain has; `None` if a source is moved up to its end.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        self.segments.iter().map(Segment::len).sum()
    }

    /// The segments in order.
    #[must_use]
    pub fn segments(&self) -> &[Segment<F>] {
        &self.segments
    }

    /// Whether it has no byte to move. A source moved up to its end may turn out to have none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Whether a socket should hold back part-filled segments until the whole chain has passed:
    /// if something follows behind a file, or if a file is so large that the kernel hands it over
    /// in many pieces, between which it would send what does not fill a segment.
    pub(crate) fn wants_cork(&self) -> bool {
        let last = self.segments.len().saturating_sub(1);
        self.segments.iter().enumerate().any(|(index, segment)| match segment {
            Segment::Bytes(_) | Segment::Payload(_) => false,
            Segment::Source(source) => {
                let is_bulk = source.len.is_some_and(|len| len >= BULK);
                index < last || (is_bulk && source.kind.is_seekable())
            }
        })
    }
}

/// From this size on corking a single file pays for its two calls. sendfile gives 64 KiB at a time
/// to TCP, which over loopback made 23,000 segments of 1 GiB; corked there are 16,400, all full.
const BULK: u64 = 1 << 20;

impl<F: AsFd> Default for Chain<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: AsFd> From<Source<F>> for Chain<F> {
    fn from(source: Source<F>) -> Self {
        Self::new().source(source)
    }
}

impl<F: AsFd> FromIterator<Segment<F>> for Chain<F> {
    fn from_iter<T: IntoIterator<Item = Segment<F>>>(segments: T) -> Self {
        Self { segments: segments.into_iter().collect() }
    }
}

/// How far a transfer has come in its chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// The segment at the front.
    pub(crate) index: usize,
    /// How much of it has been delivered.
    pub(crate) offset: u64,
}
