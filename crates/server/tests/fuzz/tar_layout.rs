//! Lays out archives of made-up members, in both formats: every range has to be within the archive,
//! as long as it says, and made of the same bytes as the whole.

use underpass_protocol::FileVersion;
use underpass_protocol::archive::{
    ArchiveFormat, ArchivePiece, Builder, Layout, Member, MemberType,
};

use crate::input::Input;

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    &[0; 64],
    b"\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x10\0\x01to\x02\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\x05\
        \0\0\0\0\0\0\0\x06\x02name\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\x01ln\x03target\0",
];

/// An archive derived from the input, and a range of it.
pub(crate) fn check(data: &[u8]) {
    let mut input = Input(data);
    let (start, end) = (input.number(), input.number());
    for format in [ArchiveFormat::Tar, ArchiveFormat::Zip] {
        let Some(layout) = lay_out(format, &mut Input(input.0)) else { continue };
        let len = layout.len();
        assert!(format == ArchiveFormat::Zip || len.is_multiple_of(512));
        let (start, end) = (start % (len + 1), end % (len + 1));
        check_range(&layout, start.min(end), start.max(end));
        check_range(&layout, 0, len);
    }
}

/// A layout derived from the input; `None` if it would be too long.
fn lay_out(format: ArchiveFormat, input: &mut Input<'_>) -> Option<Layout> {
    let top = FileVersion { device: 1, inode: 1, links: 1, ..FileVersion::default() };
    let mut builder = Builder::new(format, name_in(input));
    builder.push_top(0o755, top).ok()?;
    let mut count = 0;
    while !input.0.is_empty() && count < 200 {
        let shape = input.byte();
        let mut version = top;
        // Of every magnitude, not only huge ones.
        version.size = (input.number() >> 1) >> (input.byte() % 64);
        version.modified.seconds = input.number().cast_signed();
        version.modified.nanoseconds = (input.number() % 1_000_000_000) as u32;
        let name = name_in(input);
        let kind = match shape % 4 {
            0 => MemberType::Folder,
            1 => MemberType::Symlink(name_in(input)),
            _ => MemberType::File,
        };
        let parent = (shape & 4 != 0).then(|| u32::from(input.byte()));
        builder.push(&Member { parent, name, kind, mode: input.byte().into(), version }).ok()?;
        count += 1;
    }
    Some(builder.finish())
}

fn name_in<'a>(input: &mut Input<'a>) -> &'a [u8] {
    let len = usize::from(input.byte()) * 2;
    input.take(len)
}

/// Reads a range piece by piece, and requests each piece once more by itself.
fn check_range(layout: &Layout, start: u64, end: u64) {
    let mut at = start;
    let checksum = |version: &FileVersion| Some(version.inode as u32);
    for piece in layout.pieces_with(start..end, &checksum) {
        let len = piece.len();
        assert!(len > 0 && len <= end - at);
        let mut again = layout.pieces_with(at..at + len, &checksum);
        assert_eq!(again.next().as_ref(), Some(&piece));
        assert_eq!(again.next(), None);
        if let ArchivePiece::File { version, offset, len, .. } = piece {
            assert!(offset + len <= version.size);
        }
        at += len;
    }
    assert_eq!(at, end);
}
