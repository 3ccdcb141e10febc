//! Chains: bytes in memory and ranges of files and streams that are moved as one transfer.
//!
//! Linux has no vectored sendfile. A chain fills that gap: header, file, boundary, file and
//! trailer go out in order, packed into full segments, without copying a byte of a file to user
//! space.

mod end_kind;
mod holes;
pub(crate) mod residency;
pub(crate) mod sink;
mod source;

use std::borrow::Cow;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

pub use end_kind::EndKind;
pub use holes::{data_ranges, next_data};
pub use residency::{is_absent, is_resident};
pub use sink::Sink;
pub use source::Source;

use underpass_sys::Kind;

use crate::integrity::clone_of;

/// Bytes in memory: static, owned by one chain, or shared by several.
#[derive(Clone, Debug)]
pub enum Memory {
    /// Static bytes, or bytes owned by this chain.
    Own(Cow<'static, [u8]>),
    /// Bytes shared with other chains without a copy.
    Shared(Arc<[u8]>),
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl From<&'static [u8]> for Memory {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Own(Cow::Borrowed(bytes))
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Own(Cow::Owned(bytes))
    }
}

impl From<Cow<'static, [u8]>> for Memory {
    fn from(bytes: Cow<'static, [u8]>) -> Self {
        Self::Own(bytes)
    }
}

impl From<Arc<[u8]>> for Memory {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self::Shared(bytes)
    }
}

/// One part of a [`Chain`].
#[derive(Clone, Debug)]
pub enum Segment<F> {
    /// Bytes in memory: a header, a boundary, padding.
    Bytes(Memory),
    /// Bytes of the payload that had already been read into memory, such as those that arrived
    /// together with the header before them. They have crossed into user space and cross back.
    Payload(Memory),
    /// A file, a range of it, or a stream.
    Source(Source<F>),
}

impl<F> Segment<F> {
    /// Returns how many bytes the segment has, if that is known in advance.
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
    /// Creates a chain without segments.
    #[must_use]
    pub const fn new() -> Self {
        Self { segments: Vec::new() }
    }

    /// Appends bytes in memory.
    #[must_use]
    pub fn bytes(mut self, bytes: impl Into<Memory>) -> Self {
        self.segments.push(Segment::Bytes(bytes.into()));
        self
    }

    /// Appends bytes of the payload that were already read, see [`Segment::Payload`]; an empty
    /// slice adds no segment.
    #[must_use]
    pub fn payload(mut self, bytes: impl Into<Memory>) -> Self {
        let bytes = bytes.into();
        if !bytes.is_empty() {
            self.segments.push(Segment::Payload(bytes));
        }
        self
    }

    /// Appends a source.
    #[must_use]
    pub fn source(mut self, source: Source<F>) -> Self {
        self.segments.push(Segment::Source(source));
        self
    }

    /// Appends the segments of another chain.
    #[must_use]
    pub fn append(mut self, mut other: Self) -> Self {
        self.segments.append(&mut other.segments);
        self
    }

    /// Returns how many bytes the chain has; `None` if a source is moved up to its end.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        self.segments.iter().map(Segment::len).sum()
    }

    /// Makes the clones that a transfer with [`Integrity::Snapshot`] would make in its first step,
    /// and returns them. It waits for the disk, and its time grows with the fragments of the files.
    /// What is refused is reported by the transfer.
    ///
    /// [`Integrity::Snapshot`]: crate::Integrity::Snapshot
    pub fn make_snapshots(&mut self) -> Vec<Arc<OwnedFd>> {
        let (mut made, mut last) = (Vec::new(), None);
        for segment in &mut self.segments {
            let Segment::Source(source) = segment else { continue };
            if source.kind == Kind::Regular && !source.is_remote {
                let file = (source.fd.as_fd().as_raw_fd(), source.version);
                // The ranges of one file share its clone.
                let clone = match last.take() {
                    Some((before, clone)) if before == file => clone,
                    _ => clone_of(source.fd.as_fd(), source.version).map(Arc::new),
                };
                made.extend(clone.iter().cloned());
                source.snapshot = Some(clone.clone());
                last = Some((file, clone));
            }
        }
        made
    }

    /// Returns the segments in order.
    #[must_use]
    pub fn segments(&self) -> &[Segment<F>] {
        &self.segments
    }

    /// Returns whether the chain has no byte to move. A source that is moved up to its end may
    /// turn out to be empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Returns whether a socket should hold back partly filled segments until the whole chain has
    /// passed: if a segment follows a file, or if a file is so large that the kernel hands it
    /// over in many pieces, between which it would send partly filled segments.
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

/// The size from which corking a single file is worth its two system calls. sendfile gives TCP 64
/// KiB at a time, which over loopback made 23,000 segments of 1 GiB; with corking there are 16,400,
/// all full.
pub(crate) const BULK: u64 = 1 << 20;

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

/// The position of a transfer in its chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChainPosition {
    /// The index of the segment at the front.
    pub(crate) index: usize,
    /// The number of its bytes that have been delivered.
    pub(crate) offset: u64,
}
