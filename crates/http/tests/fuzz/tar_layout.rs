//! Lays out archives of made-up members: every range has to be within the archive, as long as it
//! says, and made of the same bytes as the whole.

#![no_main]

use std::fs::File;

use libfuzzer_sys::fuzz_target;
use rustix::fs::fstat;
use underpass_engine::Version;
use underpass_http::archive::{Builder, Kind, Layout, Member, Piece};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (start, end) = (input.number(), input.number());
    let Some(layout) = lay_out(&mut input) else { return };
    let len = layout.len();
    assert_eq!(len % 512, 0);
    let (start, end) = (start % (len + 1), end % (len + 1));
    check(&layout, start.min(end), start.max(end));
    check(&layout, 0, len);
});

/// A layout of what the input tells; `None` if it refuses to become so long.
fn lay_out(input: &mut Input<'_>) -> Option<Layout> {
    let stat = fstat(File::open("/").ok()?).ok()?;
    let mut builder = Builder::new(input.name());
    builder.push_top(0o755, Version::from_stat(&stat)).ok()?;
    let mut count = 0;
    while !input.0.is_empty() && count < 200 {
        let shape = input.byte();
        let mut stat = stat;
        // Of every magnitude, not only huge.
        stat.st_size = ((input.number() >> 1) >> (input.byte() % 64)) as _;
        stat.st_mtime = input.number() as _;
        stat.st_mtime_nsec = (input.number() % 1_000_000_000) as _;
        let name = input.name();
        let kind = match shape % 4 {
            0 => Kind::Folder,
            1 => Kind::Symlink(input.name()),
            _ => Kind::File,
        };
        let parent = (shape & 4 != 0).then(|| u32::from(input.byte()));
        let version = Version::from_stat(&stat);
        builder.push(&Member { parent, name, kind, mode: input.byte().into(), version }).ok()?;
        count += 1;
    }
    Some(builder.finish())
}

/// Walks along a range, and asks for each piece once more by itself.
fn check(layout: &Layout, start: u64, end: u64) {
    let mut at = start;
    for piece in layout.pieces(start..end) {
        let len = piece.len();
        assert!(len > 0 && len <= end - at);
        let mut again = layout.pieces(at..at + len);
        assert_eq!(again.next().as_ref(), Some(&piece));
        assert_eq!(again.next(), None);
        if let Piece::File { version, offset, len, .. } = piece {
            assert!(offset + len <= version.size());
        }
        at += len;
    }
    assert_eq!(at, end);
}

/// The bytes that are left of the fuzzer's.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> u64 {
        self.take(8).iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn name(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()) * 2;
        self.take(len)
    }
}
