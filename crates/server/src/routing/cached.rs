//! The body of a response from the cache, some of which may still be arriving.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::server::limits::helper_shares::HelperShares;
use rustix::fs::sendfile;
use rustix::io::Errno;
use tokio::time::timeout;
use underpass_cache::{CacheEntry, CacheError, CacheErrorKind, ConnectionFault, Reader};
use underpass_engine::{Chain, Error, FilePart, Source, is_resident};
use underpass_protocol::caching::CacheStatus;
use underpass_protocol::request::ClientNet;
use underpass_protocol::response::plan::PlannedBody;

/// Returns how long a client is asked to wait after a failure, for which the origin may have named
/// a time.
pub(crate) fn wait_after(error: &CacheError, named: Option<Duration>) -> Option<Duration> {
    let is_temporary = matches!(error.kind().status(), 503 | 504);
    named.or(is_temporary.then_some(Duration::from_secs(1)))
}

/// Waits until a reader has the byte at `at`; returns the end of what has arrived. Fails if the
/// origin has stalled, or if nothing fetches the byte for too long.
pub(crate) async fn wait_for(reader: &Reader, at: u64, end: u64) -> Result<u64, CacheError> {
    let mut waiting = pin!(reader.wait_for(at, end));
    let began = Instant::now();
    loop {
        match timeout(STALL_CHECK_INTERVAL, &mut waiting).await {
            Ok(arrived) => return arrived,
            Err(_) if reader.has_stalled() => return Err(ConnectionFault::TimedOut.into()),
            Err(_) if reader.is_held_up(at, began.elapsed()) => {
                return Err(CacheErrorKind::Busy.into());
            }
            Err(_) => {}
        }
    }
}

/// The log's fields about the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheFacts {
    /// How the cache answered.
    pub(crate) status: CacheStatus,
    /// The bytes of the body that were not cached when the request arrived, if they are all sent.
    pub(crate) origin_bytes: u64,
    /// The time spent waiting for the origin before the response began.
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
    /// Creates the body of a plan; without a length it is sent in chunks, if the client can.
    pub(crate) fn new(
        reader: Reader,
        content: PlannedBody,
        len: Option<u64>,
        has_chunks: bool,
    ) -> Self {
        let (parts, closing) = match content {
            PlannedBody::Range(range) => (vec![(Vec::new(), range)], Vec::new()),
            PlannedBody::Multipart(parts) => (parts.parts, parts.closing),
            PlannedBody::Whole | PlannedBody::Nothing | PlannedBody::Message(_) => {
                (vec![(Vec::new(), 0..len.unwrap_or(u64::MAX))], Vec::new())
            }
        };
        let all = parts.iter().map(|(_, range)| range.clone());
        if let Some(all) = all.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end)) {
            reader.narrow(&all);
        }
        Self { reader, parts, closing, is_chunked: has_chunks && len.is_none() }
    }

    /// Waits for the first bytes, and makes sure that the disk can read them: after a failure here,
    /// the origin can still be asked.
    pub(crate) async fn first_byte(
        &self,
        helpers: &HelperShares,
        client: ClientNet,
    ) -> Result<(), CacheError> {
        let Some((_, range)) = self.parts.first() else { return Ok(()) };
        let end = self.wait_for(range.start, range.end).await?;
        let (file, at, len) = (self.reader.file(), range.start, FIRST_READ.min(end - range.start));
        if self.is_relayed() || is_resident(&file, at, len) {
            return Ok(());
        }
        let read = helpers.run(client, move || read_into_page_cache(&file, at, len)).await;
        match read {
            Ok(Err(error)) if is_disk_error(&error) => {
                self.reader.mark_damaged();
                Err(CacheErrorKind::Disk.into())
            }
            _ => Ok(()),
        }
    }

    /// Marks the object as damaged if sending it failed because of the disk or a truncated file.
    pub(crate) fn failed(&self, error: &Error) {
        let is_damaged = match error {
            Error::Io { source, .. } => is_disk_error(source),
            Error::SourceEnded { .. } => true,
            _ => false,
        };
        if is_damaged && !self.is_relayed() {
            self.reader.mark_damaged();
        }
    }

    /// Returns whether its bytes may be lost, so that no more of them are sent.
    pub(crate) fn is_lost(&self) -> bool {
        self.reader.is_lost()
    }

    /// Waits for the byte at `at`; returns the end of what has arrived.
    pub(crate) async fn wait_for(&self, at: u64, end: u64) -> Result<u64, CacheError> {
        wait_for(&self.reader, at, end).await
    }

    /// Returns whether it is relayed from the origin without being stored.
    pub(crate) fn is_relayed(&self) -> bool {
        self.why_relayed().is_some()
    }

    /// Returns the reason why it is relayed, if it is.
    pub(crate) fn why_relayed(&self) -> Option<CacheErrorKind> {
        self.reader.why_relayed()
    }

    /// Returns whether the end of the connection delimits the body.
    pub(crate) fn ends_with_connection(&self) -> bool {
        !self.is_chunked && self.parts.iter().any(|(_, range)| range.end == u64::MAX)
    }

    /// Returns how many bytes of it are not cached.
    pub(crate) fn missing_bytes(&self, entry: &CacheEntry) -> u64 {
        let missing = |range: &Range<u64>| match range.end {
            u64::MAX => 0,
            end => end - range.start - entry.present(range),
        };
        self.parts.iter().map(|(_, range)| missing(range)).sum()
    }

    /// Returns the source of a part that has arrived.
    pub(crate) fn source(&self, range: Range<u64>) -> io::Result<Source<Arc<OwnedFd>>> {
        match self.reader.pipe() {
            Some(pipe) => Ok(Source::of(pipe)?.len(range.end - range.start)),
            None => Ok(self.stored(range)),
        }
    }

    /// Returns a part of the file.
    fn stored(&self, range: Range<u64>) -> Source<Arc<OwnedFd>> {
        Source::range(self.reader.file(), range.start, range.end - range.start)
    }

    /// Returns whether all of it is cached, and not so large that pages of it may leave memory
    /// while it is sent.
    pub(crate) fn is_present(&self) -> bool {
        self.part_here(MAX_WHOLE).is_some()
    }

    /// Returns the only part, if it has at most `max` bytes, all in memory, with nothing before or
    /// after it. It never changes.
    pub(crate) fn simple_part(&self, max: u64) -> Option<FilePart<Arc<OwnedFd>>> {
        let Range { start: offset, end } = self.part_here(max)?;
        let len = usize::try_from(end - offset).ok()?;
        let is_bare = self.parts.iter().all(|(header, _)| header.is_empty());
        (is_bare && self.closing.is_empty()).then(|| FilePart {
            file: self.reader.file(),
            offset,
            len,
            version: None,
        })
    }

    /// Returns the only range, if all of it is cached, in memory, and at most `max` bytes long.
    fn part_here(&self, max: u64) -> Option<Range<u64>> {
        let [(_, range)] = self.parts.as_slice() else { return None };
        let len = range.end - range.start;
        let is_here = !self.is_chunked && len <= max && self.reader.present(range) == len;
        (is_here && is_resident(self.reader.file(), range.start, len)).then(|| range.clone())
    }

    /// Returns whether the first bytes are in memory, so that a response can begin at once.
    pub(crate) fn has_first(&self) -> bool {
        let Some((_, range)) = self.parts.first() else { return true };
        let (at, len) = (range.start, FIRST_READ.min(range.end - range.start));
        let is_here = !self.is_chunked && self.reader.present(&(at..at + len)) == len;
        is_here && is_resident(self.reader.file(), at, len)
    }

    /// Leaves out the first bytes of a body that is one part, because they were sent.
    pub(crate) fn skip(&mut self, bytes: u64) {
        if let [(_, range)] = self.parts.as_mut_slice() {
            range.start += bytes;
        }
    }

    /// Returns whether nothing of it is left to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.iter().all(|(_, range)| range.is_empty()) && self.closing.is_empty()
    }

    /// Returns the head and the whole body as one chain.
    pub(crate) fn chain(&self, head: &[u8]) -> Chain<Arc<OwnedFd>> {
        let chain = Chain::new().bytes(head.to_vec());
        let chain = self.parts.iter().fold(chain, |chain, (header, range)| {
            chain.bytes(header.clone()).source(self.stored(range.clone()))
        });
        chain.bytes(self.closing.clone())
    }
}

/// Reads a part of a file into the page cache: sendfile(2) into /dev/null copies nothing. A
/// truncated file counts as unreadable.
fn read_into_page_cache(file: &OwnedFd, mut at: u64, len: u64) -> io::Result<()> {
    let null = File::options().write(true).open("/dev/null")?;
    let end = at + len;
    while at < end {
        let rest = usize::try_from(end - at).unwrap_or(usize::MAX);
        if sendfile(&null, file, Some(&mut at), rest)? == 0 {
            return Err(Errno::IO.into());
        }
    }
    Ok(())
}

/// Returns whether an error is one of reading from a disk, or from a file system in user space that
/// has exited.
fn is_disk_error(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::NOTCONN))
}

/// The bytes of a body that are read before its head is sent.
const FIRST_READ: u64 = 128 << 10;

/// The maximum size of a body that is sent at once, if it is in memory.
const MAX_WHOLE: u64 = 1 << 20;

/// The interval at which a response that waits for bytes checks whether they may still come.
const STALL_CHECK_INTERVAL: Duration = Duration::from_millis(500);
