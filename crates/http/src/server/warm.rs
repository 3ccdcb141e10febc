//! Pages that have to come from a disk, brought in by helper threads while the worker goes on.
//!
//! Linux has no asynchronous sendfile: a step into a part that is not in the page cache waits for
//! the disk, and with it every connection of the worker. So the part is looked at beforehand, and
//! if pages are missing a helper waits for them instead.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Advice, fadvise, sendfile};
use rustix::io::Errno;
use underpass_engine::{Chain, Segment, is_resident};

/// A part of a body and where it comes from.
#[derive(Clone, Debug)]
struct Span {
    file: Arc<OwnedFd>,
    /// Where it begins in the file.
    offset: u64,
    len: u64,
}

/// How far the pages of a chain are known to be in the page cache.
#[derive(Debug, Default)]
pub(super) struct Warmth {
    /// The parts in order, each with the place in the chain where it begins.
    spans: Vec<(u64, Span)>,
    /// The place up to which no step has to wait for a disk.
    until: u64,
}

/// A part of which pages are missing.
#[derive(Clone, Debug)]
pub(super) struct Cold {
    span: Span,
    /// The place in the chain where the part ends.
    end: u64,
}

impl Warmth {
    /// Nothing is known yet about the files of a chain.
    pub(super) fn new(chain: &Chain<Arc<OwnedFd>>) -> Self {
        let mut place = 0;
        let mut spans = Vec::new();
        for segment in chain.segments() {
            match segment {
                Segment::Bytes(bytes) => place += bytes.len() as u64,
                Segment::Source(source) => {
                    let (offset, len) = (source.offset(), source.promised());
                    let (Some(offset), Some(len)) = (offset, len) else { continue };
                    spans.push((place, Span { file: Arc::clone(source.fd()), offset, len }));
                    place += len;
                }
            }
        }
        Self { spans, until: 0 }
    }

    /// Everything is known to be there.
    pub(super) fn complete() -> Self {
        Self { spans: Vec::new(), until: u64::MAX }
    }

    /// Looks whether the next `turn` bytes from `place` on can be sent without waiting; returns
    /// the first part that cannot.
    pub(super) fn look(&mut self, place: u64, turn: u64) -> Option<Cold> {
        let wanted = place.saturating_add(turn);
        while self.until < wanted {
            let at = self.until.max(place);
            let Some((begin, span)) = self.span_at(at) else {
                self.until = u64::MAX;
                break;
            };
            let skip = at.saturating_sub(*begin);
            let len = WINDOW.min(span.len - skip);
            let (offset, end) = (span.offset + skip, begin + skip + len);
            if !is_resident(&span.file, offset, len) {
                let span = Span { file: Arc::clone(&span.file), offset, len };
                return Some(Cold { span, end });
            }
            self.until = end;
        }
        None
    }

    /// Notes that a part has been brought in.
    pub(super) fn is_warm(&mut self, cold: &Cold) {
        self.until = self.until.max(cold.end);
    }

    /// The first part that ends behind a place.
    fn span_at(&self, place: u64) -> Option<&(u64, Span)> {
        let index = self.spans.partition_point(|(begin, span)| begin + span.len <= place);
        self.spans.get(index)
    }
}

impl Cold {
    /// Waits for the pages, on a helper thread, and has the kernel begin with the next ones.
    ///
    /// sendfile(2) into /dev/null reads the pages and copies nothing: no byte surfaces.
    pub(super) fn fetch(&self, null: &OwnedFd) -> io::Result<()> {
        let Span { file, offset, len } = &self.span;
        // What follows is most likely asked for next; a refusal only means that it comes later.
        let _ = fadvise(file, offset + len, std::num::NonZero::new(AHEAD), Advice::WillNeed);
        let (mut at, end) = (*offset, offset + len);
        while at < end {
            let rest = usize::try_from(end - at).unwrap_or(usize::MAX);
            match sendfile(null, file.as_fd(), Some(&mut at), rest) {
                // Shorter than it was; the transfer finds out.
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                // Whatever it is, the transfer meets it too and knows what to do.
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// Bytes looked at, and if need be brought in, as one.
const WINDOW: u64 = 1 << 20;

/// Bytes that the disk is told of before they are needed.
const AHEAD: u64 = 2 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use underpass_engine::Source;

    use super::*;

    #[test]
    fn a_cold_part_is_found_fetched_and_found_no_more() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![1; 3 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let opened: Arc<OwnedFd> = Arc::new(File::open(file.path()).unwrap().into());
        let part = |offset, len| Source::range(Arc::clone(&opened), offset, len);
        let (first, second) = (part(0, 1 << 20), part(1 << 20, 5000));
        let chain =
            Chain::new().bytes(vec![0; 100]).source(first).bytes(vec![0; 50]).source(second);
        let mut warmth = Warmth::new(&chain);
        let Some(cold) = warmth.look(0, 1000) else {
            println!("skipped: this file system keeps its files in memory");
            return;
        };
        assert_eq!(cold.end, 100 + (1 << 20));
        let null = File::options().write(true).open("/dev/null").unwrap().into();
        cold.fetch(&null).unwrap();
        warmth.is_warm(&cold);
        assert!(warmth.look(0, 1000).is_none());
        let second = 100 + (1 << 20) + 50;
        let next = warmth.look(second, 1000);
        if let Some(next) = next {
            next.fetch(&null).unwrap();
            warmth.is_warm(&next);
        }
        assert!(warmth.look(second, 1 << 20).is_none(), "behind the last part nothing is cold");
    }
}
