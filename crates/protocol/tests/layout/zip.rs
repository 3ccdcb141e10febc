//! Zips of made-up members, read back by another reader of zips.

use std::io;
use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use rawzip::{ReaderAt, ZipArchive, ZipLocator};
use underpass_protocol::FileVersion;
use underpass_protocol::archive::{
    ArchiveFormat, ArchivePiece, Builder, Layout, Member, MemberType,
};

use super::{Made, check_range, joined, lay_out_as, merged, tree, version};

/// The contents of a file, a pattern that differs from file to file.
fn contents(version: &FileVersion, range: Range<u64>) -> Vec<u8> {
    range.map(|at| (at + version.inode) as u8).collect()
}

fn checksum(version: &FileVersion) -> Option<u32> {
    Some(crc32fast::hash(&contents(version, 0..version.size)))
}

fn bytes(layout: &Layout, range: Range<u64>) -> Vec<u8> {
    joined(layout.pieces_with(range, &checksum), |_, version, range| contents(version, range))
}

fn lay_out(members: &[Made]) -> (Layout, Vec<Vec<u8>>) {
    lay_out_as(ArchiveFormat::Zip, members)
}

proptest! {
    #[test]
    fn a_range_has_the_bytes_that_the_whole_has_there(
        members in tree(3_000), a in any::<Index>(), b in any::<Index>()
    ) {
        check_range(&lay_out(&members).0, (a, b), bytes)?;
    }

    #[test]
    fn another_program_reads_the_members_back(members in tree(3_000)) {
        let (layout, paths) = lay_out(&members);
        let whole = bytes(&layout, 0..layout.len());
        let archive = ZipArchive::from_slice(&whole).unwrap();
        let mut entries = archive.entries();
        for (number, path) in paths.iter().enumerate() {
            let entry = entries.next_entry().unwrap().unwrap();
            prop_assert!(entry.file_path().as_ref() == &path[..]);
            prop_assert_eq!(entry.flags().is_utf8(), !path.is_ascii() && str::from_utf8(path).is_ok());
            let found = archive.get_entry(entry.wayfinder()).unwrap();
            let mut read = Vec::new();
            // It compares the checksum and the length.
            io::copy(&mut found.verifying_reader(found.data()), &mut read).unwrap();
            let Some((index, made)) = number.checked_sub(1).map(|at| (at, &members[at])) else {
                continue;
            };
            let (kind, expected) = match made.kind {
                0 => (0o040_000, Vec::new()),
                1 => (0o120_000, made.target.clone()),
                _ => (0o100_000, contents(&version(0, (0, 0), index as u64), 0..made.size)),
            };
            prop_assert_eq!(entry.mode().value(), kind | made.mode & 0o777);
            prop_assert_eq!(entry.is_dir(), made.kind == 0);
            prop_assert_eq!(read, expected);
        }
        prop_assert!(entries.next_entry().unwrap().is_none());
    }

    #[test]
    fn ranges_of_an_archive_of_any_size_meet_without_a_gap(
        members in tree(1 << 58), cuts in vec(any::<u64>(), 3)
    ) {
        let (layout, _) = lay_out(&members);
        let some = |version: &FileVersion| Some(version.inode as u32);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (layout.len() + 1)).collect();
        cuts.sort_unstable();
        let (start, middle, end) = (cuts[0], cuts[1], cuts[2]);
        let pieces = |start, end| layout.pieces_with(start..end, &some);
        let whole = merged(pieces(start, end));
        prop_assert_eq!(whole.iter().map(ArchivePiece::len).sum::<u64>(), end - start);
        let mut halves: Vec<_> = pieces(start, middle).collect();
        halves.extend(pieces(middle, end));
        prop_assert_eq!(merged(halves.into_iter()), whole);
    }

    #[test]
    fn a_large_archive_is_read_back(members in tree(1 << 58)) {
        let (layout, paths) = lay_out(&members);
        let made_up = MadeUp(&layout);
        let mut buffer = vec![0; 70_000];
        let located = ZipLocator::new().locate_in_reader(made_up, &mut buffer, layout.len());
        let archive = located.map_err(|(_, error)| error).unwrap();
        let mut entries = archive.entries(&mut buffer);
        for (number, path) in paths.iter().enumerate() {
            let entry = entries.next_entry().unwrap().unwrap();
            prop_assert!(entry.file_path().as_ref() == &path[..]);
            let Some(made) = number.checked_sub(1).map(|at| &members[at]) else { continue };
            if made.kind > 1 {
                prop_assert_eq!(entry.uncompressed_size_hint(), made.size);
                prop_assert_eq!(entry.compressed_size_hint(), made.size);
                // The local header is where the directory says, and its name is the same.
                let mut header = vec![0; 30 + path.len()];
                made_up.read_exact_at(&mut header, entry.local_header_offset()).unwrap();
                prop_assert_eq!(&header[..4], b"PK\x03\x04");
                prop_assert_eq!(&header[30..], &path[..]);
            }
        }
        prop_assert!(entries.next_entry().unwrap().is_none());
    }

    #[test]
    fn a_checksum_is_requested_before_the_bytes_that_need_it(members in tree(3_000)) {
        let (layout, _) = lay_out(&members);
        let known = std::cell::RefCell::new(Vec::new());
        let look_up = |version: &FileVersion| {
            known.borrow().contains(&version.inode).then(|| checksum(version)).flatten()
        };
        let mut len = 0;
        for piece in layout.pieces_with(0..layout.len(), &look_up) {
            len += piece.len();
            if let ArchivePiece::Checksum { version, .. } = piece {
                // Once for each file, although its entry in the directory needs it too.
                prop_assert!(!known.borrow().contains(&version.inode));
                known.borrow_mut().push(version.inode);
            }
        }
        prop_assert_eq!(len, layout.len());
        let files = members.iter().filter(|made| made.kind > 1 && made.size > 0).count();
        prop_assert_eq!(known.borrow().len(), files);
    }
}

/// An archive of files that are too large to exist, whose bytes are all zero.
#[derive(Clone, Copy)]
struct MadeUp<'a>(&'a Layout);

impl ReaderAt for MadeUp<'_> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        let range = offset..offset.saturating_add(buf.len() as u64);
        for piece in self.0.pieces_with(range, &|_| Some(0)) {
            let len = piece.len() as usize;
            match piece {
                ArchivePiece::Bytes(bytes) => buf[filled..filled + len].copy_from_slice(&bytes),
                _ => buf[filled..filled + len].fill(0),
            }
            filled += len;
        }
        Ok(filled)
    }
}

/// A zip of this many files of this size.
fn many(count: u32, size: u64) -> Layout {
    let mut builder = Builder::new(ArchiveFormat::Zip, b"");
    for index in 0..count {
        let name = index.to_string().into_bytes();
        let version = version(size, (0, 0), index.into());
        let member =
            Member { parent: None, name: &name, kind: MemberType::File, mode: 0o644, version };
        builder.push(&member).unwrap();
    }
    builder.finish()
}

#[test]
fn more_members_than_two_bytes_count_are_read_back() {
    for count in [65_534, 65_535, 65_536, 100_000] {
        let layout = many(count, 0);
        let whole = bytes(&layout, 0..layout.len());
        let archive = ZipArchive::from_slice(&whole).unwrap();
        assert_eq!(archive.entries_hint(), u64::from(count));
        let mut entries = archive.entries();
        let mut found = 0;
        while let Some(entry) = entries.next_entry().unwrap() {
            assert_eq!(entry.file_path().as_ref(), found.to_string().as_bytes());
            found += 1;
        }
        assert_eq!(found, count);
        // Anywhere in the directory, the bytes are those of the whole.
        let start = archive.directory_offset();
        for at in (start..layout.len()).step_by(300_007) {
            let end = layout.len().min(at + 1_000);
            assert_eq!(bytes(&layout, at..end), whole[at as usize..end as usize]);
        }
    }
}

#[test]
fn values_of_more_than_four_bytes_and_the_last_that_fit_are_read_back() {
    for size in [u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 32, 1 << 40] {
        let layout = many(3, size);
        let mut buffer = vec![0; 70_000];
        let located =
            ZipLocator::new().locate_in_reader(MadeUp(&layout), &mut buffer, layout.len());
        let archive = located.map_err(|(_, error)| error).unwrap();
        let mut entries = archive.entries(&mut buffer);
        let mut end = 0;
        while let Some(entry) = entries.next_entry().unwrap() {
            assert_eq!(entry.uncompressed_size_hint(), size);
            assert!(entry.local_header_offset() >= end);
            end = entry.local_header_offset() + size;
        }
        assert!(end > 3 * size);
    }
}

#[test]
fn the_two_archives_of_a_folder_have_two_etags() {
    let etags = [ArchiveFormat::Tar, ArchiveFormat::Zip]
        .map(|format| Builder::new(format, b"top").finish().etag());
    assert_ne!(etags[0], etags[1]);
}

#[test]
fn an_empty_archive_is_only_its_end() {
    let layout = many(0, 0);
    let whole = bytes(&layout, 0..u64::MAX);
    assert_eq!(whole.len(), 22);
    assert!(ZipArchive::from_slice(&whole).unwrap().entries().next_entry().unwrap().is_none());
}

#[test]
fn a_path_that_no_zip_can_hold_is_refused() {
    let mut builder = Builder::new(ArchiveFormat::Zip, b"");
    let folder = |parent, name| {
        let version = version(0, (0, 0), 1);
        Member { parent, name, kind: MemberType::Folder, mode: 0o755, version }
    };
    let name = [b'x'; 255];
    let mut parent = None;
    let error = loop {
        match builder.push(&folder(parent, &name)) {
            Ok(number) => parent = Some(number),
            Err(error) => break error,
        }
    };
    assert_eq!(parent, Some(253 - 1));
    assert!(error.to_string().contains("65000 bytes"), "{error}");
}
