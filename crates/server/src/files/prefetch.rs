//! Brings pages in from a disk on helper threads while the worker goes on.
//!
//! Linux has no asynchronous sendfile: if a part is not in the page cache, sending it waits for the
//! disk, and every connection of the worker waits too. So the part is checked beforehand, and if
//! pages are missing a helper waits for them instead.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::sendfile;
use rustix::io::Errno;
use underpass_engine::{Chain, Segment, Usage, is_absent, is_resident};

use crate::files::open_files::LIFETIME;

/// A part of a body with its file.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) file: Arc<OwnedFd>,
    /// The offset in the file.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Whether a file server or another program provides the file: only helpers may wait for it.
    pub(crate) is_remote: bool,
}

/// The part of a chain whose pages are known to be in the page cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct Residency {
    /// The parts in order, each with the position in the chain at which it begins.
    spans: Vec<(u64, Span)>,
    /// The position up to which no step has to wait for a disk.
    until: u64,
    /// The time at which `until` was determined.
    looked: Option<Instant>,
    /// The number of bytes to check next.
    window: u64,
    /// The number of further parts that are fetched without a check: the kernel counts pages as
    /// cached as soon as their read has begun.
    distrust: u8,
}

/// A part with missing pages.
#[derive(Clone, Debug)]
pub(crate) struct MissingRange {
    pub(crate) span: Span,
    /// The position in the chain at which the part begins.
    pub(crate) begin: u64,
    /// The position at which it ends.
    pub(crate) end: u64,
}

impl Residency {
    /// Creates a state in which nothing is known about the files of a chain.
    pub(crate) fn new(chain: &Chain<Arc<OwnedFd>>) -> Self {
        let mut place = 0;
        let mut spans = Vec::new();
        for segment in chain.segments() {
            match segment {
                Segment::Bytes(bytes) | Segment::Payload(bytes) => place += bytes.len() as u64,
                Segment::Source(source) => {
                    let (offset, len) = (source.offset(), source.promised());
                    let (Some(offset), Some(len)) = (offset, len) else { continue };
                    let (file, is_remote) = (Arc::clone(source.fd()), source.is_remote());
                    spans.push((place, Span { file, offset, len, is_remote }));
                    place += len;
                }
            }
        }
        Self { spans, ..Self::default() }
    }

    /// Creates a state in which everything has just been found cached.
    pub(crate) fn known(chain: &Chain<Arc<OwnedFd>>) -> Self {
        let until = chain.len().unwrap_or(0);
        Self { until, looked: Some(Instant::now()), ..Self::new(chain) }
    }

    /// Checks whether the next `turn` bytes from `place` on can be sent without waiting; returns
    /// the first part that cannot.
    pub(crate) fn next_missing(&mut self, place: u64, turn: u64) -> Option<MissingRange> {
        let wanted = place.saturating_add(turn);
        if self.until >= wanted && self.until != u64::MAX {
            let is_old = self.looked.is_some_and(|looked| looked.elapsed() > LIFETIME);
            if is_old {
                // The client is slow: pages that were cached may have been dropped.
                self.until = place;
                self.window = WINDOW;
            }
        }
        while self.until < wanted {
            let len = if self.distrust > 0 { WINDOW } else { self.window.max(WINDOW) };
            let Some(part) = self.part(self.until.max(place), len) else {
                self.until = u64::MAX;
                break;
            };
            let Span { file, offset, len, is_remote } = &part.span;
            // A file server is asked first even if the pages are in memory.
            if self.distrust > 0 || *is_remote || !is_resident(file, *offset, *len) {
                return self.part(part.begin, WINDOW);
            }
            self.until = part.end;
            self.looked = Some(Instant::now());
            self.window = (self.window.max(WINDOW) * 2).min(MAX_WINDOW);
        }
        None
    }

    /// Records that a part was fetched, and whether that waited for the disk.
    pub(crate) fn fetched(&mut self, part: &MissingRange, waited: bool) {
        self.until = self.until.max(part.end);
        self.looked = Some(Instant::now());
        self.window = WINDOW;
        self.distrust = if waited { DISTRUSTED_PARTS } else { self.distrust.saturating_sub(1) };
    }

    /// Returns the parts without a single cached page, in order, for as long as `is_wanted`.
    /// Adjacent parts of one file are merged.
    pub(crate) fn absent(&self, is_wanted: impl Fn() -> bool) -> Vec<MissingRange> {
        let mut absent: Vec<MissingRange> = Vec::new();
        let (mut place, mut window) = (0, WINDOW);
        while let Some(part) = self.part(place, window).filter(|_| is_wanted()) {
            let Span { file, offset, len, .. } = &part.span;
            let is_absent = is_absent(file, *offset, *len);
            if !is_absent && window > WINDOW {
                window = WINDOW;
                continue;
            }
            place = part.end;
            if !is_absent {
                continue;
            }
            // Checking pages that are not cached takes no time.
            window = (window * 2).min(MAX_ABSENT);
            match absent.last_mut() {
                Some(last) if last.is_followed_by(&part) => {
                    last.span.len += part.span.len;
                    last.end = part.end;
                }
                _ => absent.push(part),
            }
        }
        absent
    }

    /// Returns the part after the cached ones, if it should be fetched ahead.
    pub(crate) fn next(&self) -> Option<MissingRange> {
        if self.distrust > 0 { self.part(self.until, WINDOW) } else { None }
    }

    /// Returns the remote files of the chain.
    pub(crate) fn remote(&self) -> Vec<Arc<OwnedFd>> {
        let remote = self.spans.iter().filter(|(_, span)| span.is_remote);
        let mut files: Vec<_> = remote.map(|(_, span)| Arc::clone(&span.file)).collect();
        // Ranges of one file are adjacent: a response has ranges of one file, or several files with
        // one range each.
        files.dedup_by(|one, other| Arc::ptr_eq(one, other));
        files
    }

    /// Returns the part of at most `len` bytes that begins at a position or, if that is not in a
    /// file, at the next one that is.
    fn part(&self, place: u64, len: u64) -> Option<MissingRange> {
        let (begin, span) = self.span_at(place)?;
        let skip = place.saturating_sub(*begin);
        let len = len.min(span.len - skip);
        let begin = begin + skip;
        let span = Span { offset: span.offset + skip, len, ..span.clone() };
        Some(MissingRange { span, begin, end: begin + len })
    }

    /// Returns the first part that ends after a position.
    fn span_at(&self, place: u64) -> Option<&(u64, Span)> {
        let index = self.spans.partition_point(|(begin, span)| begin + span.len <= place);
        self.spans.get(index)
    }
}

impl MissingRange {
    fn is_followed_by(&self, next: &Self) -> bool {
        let (span, next) = (&self.span, &next.span);
        Arc::ptr_eq(&span.file, &next.file) && span.offset + span.len == next.offset
    }

    /// Returns whether another part is the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.begin, self.end) == (other.begin, other.end)
    }

    /// Waits for the pages, on a helper thread, for as long as `is_wanted`; returns whether it had
    /// to wait.
    ///
    /// sendfile(2) into /dev/null reads the pages and copies nothing. Errors are ignored here,
    /// because the transfer meets them too and handles them.
    pub(crate) fn fetch(&self, null: &OwnedFd, is_wanted: impl Fn() -> bool) -> bool {
        let before = Usage::of_this_thread();
        let Span { file, offset, len, .. } = &self.span;
        let (mut at, end) = (*offset, offset + len);
        while at < end && is_wanted() {
            // The calls are short: many kernels do not preempt a system call, so a long one would
            // keep the worker off its processor.
            let rest = usize::try_from(end - at).unwrap_or(usize::MAX).min(READ_SIZE);
            match sendfile(null, file.as_fd(), Some(&mut at), rest) {
                // The file was truncated.
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        // Only waiting for the disk gives up the processor here.
        Usage::of_this_thread().voluntary_switches > before.voluntary_switches
    }
}

/// The number of bytes checked at once at first, and fetched if needed.
const WINDOW: u64 = 1 << 20;

/// The maximum number of bytes checked at once after many were cached: some 0.1 ms.
const MAX_WINDOW: u64 = 32 << 20;

/// The maximum number of bytes checked at once for absent pages.
const MAX_ABSENT: u64 = 1 << 30;

/// The number of parts after a missing one that must be cached before checks are trusted again.
const DISTRUSTED_PARTS: u8 = 8;

/// The number of bytes fetched by one call: some 0.2 ms of processor time.
const READ_SIZE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Seek, SeekFrom, Write};

    use rustix::fs::{Advice, fadvise};
    use underpass_engine::Source;

    use super::*;

    #[test]
    fn a_missing_part_is_found_and_after_a_fetch_no_longer() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![1; 3 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let opened: Arc<OwnedFd> = Arc::new(File::open(file.path()).unwrap().into());
        let part = |offset, len| Source::range(Arc::clone(&opened), offset, len);
        let (first, second) = (part(0, 1 << 20), part(1 << 20, 5000));
        let chain =
            Chain::new().bytes(vec![0; 100]).source(first).bytes(vec![0; 50]).source(second);
        let mut residency = Residency::new(&chain);
        let Some(missing) = residency.next_missing(0, 1000) else {
            return underpass_testkit::skip("this file system keeps its files in memory");
        };
        assert_eq!(missing.end, 100 + (1 << 20));
        let null = File::options().write(true).open("/dev/null").unwrap().into();
        // A disk may be too fast for any wait; then nothing is prefetched.
        let waited = missing.fetch(&null, || true);
        residency.fetched(&missing, waited);
        assert!(residency.next_missing(0, 1000).is_none());
        let ahead = residency.next().map(|next| next.begin);
        assert_eq!(ahead, waited.then_some(missing.end + 50));
        let second = 100 + (1 << 20) + 50;
        while let Some(next) = residency.next_missing(second, 1000) {
            residency.fetched(&next, next.fetch(&null, || true));
        }
        assert!(
            residency.next_missing(second, 1 << 20).is_none(),
            "behind the last part nothing is cold"
        );
    }

    #[test]
    fn a_missing_range_ends_where_cached_pages_begin() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4 << 30).unwrap();
        let opened: Arc<OwnedFd> = Arc::new(File::open(file.path()).unwrap().into());
        let chain = Chain::new().source(Source::range(opened, 0, 4 << 30));
        let parts = || {
            let absent = Residency::new(&chain).absent(|| true);
            absent.into_iter().map(|part| (part.begin, part.end)).collect::<Vec<_>>()
        };
        assert_eq!(parts(), [(0, 4 << 30)]);
        file.seek(SeekFrom::Start(3 << 29)).unwrap();
        file.write_all(b"x").unwrap();
        assert_eq!(parts(), [(0, 3 << 29), ((3 << 29) + WINDOW, 4 << 30)]);
        assert!(Residency::new(&chain).absent(|| false).is_empty());
    }
}
