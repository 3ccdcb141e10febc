//! The body of a response from the cache, some of which may still be on its way.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use underpass_cache::{Entry, Failure, Reader};
use underpass_engine::{Chain, Source, is_resident};
use underpass_protocol::response::plan::PlannedBody;

/// What the log says about the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheFacts {
    /// `hit`, `miss`, `partial` or `stale`.
    pub(crate) word: &'static str,
    /// How many bytes of the body were not here when the request came, if they are all sent.
    pub(crate) origin_bytes: u64,
    /// How long the origin was waited for before the response began.
    pub(crate) waited: Duration,
}

/// A body from the cache.
#[derive(Debug)]
pub(crate) struct CachedBody {
    reader: Reader,
    /// The ranges in their order, each with the bytes before it.
    pub(crate) parts: Vec<(Vec<u8>, Range<u64>)>,
    /// The bytes after the last range.
    pub(crate) closing: Vec<u8>,
    /// Whether it is sent in chunks up to the end of the object.
    pub(crate) is_chunked: bool,
}

impl CachedBody {
    /// Creates the body of a plan; without a length it is sent in chunks.
    pub(crate) fn new(reader: Reader, content: PlannedBody, len: Option<u64>) -> Self {
        let (parts, closing) = match content {
            PlannedBody::Range(range) => (vec![(Vec::new(), range)], Vec::new()),
            PlannedBody::Multipart(parts) => (parts.parts, parts.closing),
            PlannedBody::Whole | PlannedBody::Nothing | PlannedBody::Message(_) => {
                (vec![(Vec::new(), 0..len.unwrap_or(u64::MAX))], Vec::new())
            }
        };
        Self { reader, parts, closing, is_chunked: len.is_none() }
    }

    /// Waits for the first byte.
    pub(crate) async fn first_byte(&self) -> Result<(), Failure> {
        if let Some((_, range)) = self.parts.first() {
            self.arrive(range.start, range.end).await?;
        }
        Ok(())
    }

    /// Waits for a byte; returns up to where all have come.
    pub(crate) async fn arrive(&self, at: u64, end: u64) -> Result<u64, Failure> {
        self.reader.arrive(at, end).await
    }

    /// Returns how many bytes of it are not here.
    pub(crate) fn missing_at(&self, entry: &Entry) -> u64 {
        let missing = |range: &Range<u64>| match range.end {
            u64::MAX => 0,
            end => end - range.start - entry.present(range),
        };
        self.parts.iter().map(|(_, range)| missing(range)).sum()
    }

    /// Returns a part of the file.
    pub(crate) fn source(&self, range: Range<u64>) -> Source<Arc<OwnedFd>> {
        Source::range(self.reader.file(), range.start, range.end - range.start)
    }

    /// Returns the head and the whole body as one chain, and whether all of it is in memory; `None`
    /// if some of it is still on its way, or there are several parts.
    pub(crate) fn present_chain(&self, head: &[u8]) -> Option<(Chain<Arc<OwnedFd>>, bool)> {
        let [(header, range)] = self.parts.as_slice() else { return None };
        let len = range.end - range.start;
        if self.is_chunked || self.reader.present(range) < len {
            return None;
        }
        let is_resident = len <= WHOLE && is_resident(self.reader.file(), range.start, len);
        let chain = Chain::new().bytes([head, header].concat()).source(self.source(range.clone()));
        Some((chain.bytes(self.closing.clone()), is_resident))
    }
}

/// The size up to which all pages of a body are looked up.
const WHOLE: u64 = 1 << 20;
