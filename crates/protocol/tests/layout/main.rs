//! The layout by itself: random trees and random ranges, with files that do not exist.

#![allow(clippy::unwrap_used)]

mod zip;

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use underpass_protocol::archive::{
    ArchiveFormat, ArchivePiece, Builder, Layout, Member, MemberType,
};
use underpass_protocol::{FileTime, FileVersion};

/// The version of a file that does not exist.
fn version(size: u64, (seconds, nanoseconds): (i64, u32), inode: u64) -> FileVersion {
    let changed = FileTime { seconds: 1, nanoseconds: 1 };
    let modified = FileTime { seconds, nanoseconds };
    FileVersion { device: 1, inode, size, modified, changed, links: 1 }
}

/// The paths of all members as the `tar` crate reads them.
fn paths(archive: &[u8]) -> Vec<Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    archive.entries().unwrap().map(|entry| entry.unwrap().path_bytes().into_owned()).collect()
}

/// One made-up member.
#[derive(Clone, Debug)]
struct Made {
    parent: Index,
    name: Vec<u8>,
    kind: u8,
    target: Vec<u8>,
    mode: u32,
    size: u64,
    modified: (i64, u32),
}

/// Bytes that a name may have, except newlines, at which the `tar` crate ends a PAX record.
fn name(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => b'a'..=b'z', 1 => any::<u8>()];
    let allowed = |byte| if matches!(byte, 0 | b'/' | b'\n') { b'_' } else { byte };
    // A few repeated bytes give names of every length without generating each byte.
    let repeated = |(bytes, len): (Vec<u8>, _)| bytes.into_iter().cycle().take(len).collect();
    (vec(byte.prop_map(allowed), 1..6), 1..=longest).prop_map(repeated)
}

fn made(largest: u64) -> impl Strategy<Value = Made> {
    let time = (prop_oneof![-9_i64..9, any::<i64>()], 0..1_000_000_000_u32);
    let size = prop_oneof![Just(0), 0..=largest.min(1_025), 0..=largest];
    (any::<Index>(), name(120), 0..4_u8, name(130), any::<u32>(), size, time).prop_map(
        |(parent, name, kind, target, mode, size, modified)| Made {
            parent,
            name,
            kind,
            target,
            mode,
            size,
            modified,
        },
    )
}

fn tree(largest: u64) -> impl Strategy<Value = Vec<Made>> {
    vec(made(largest), 0..24)
}

/// The tar of made-up members, and their paths in the archive.
fn lay_out(members: &[Made]) -> (Layout, Vec<Vec<u8>>) {
    lay_out_as(ArchiveFormat::Tar, members)
}

/// The archive of made-up members, each of which has its own inode, and their paths in it.
fn lay_out_as(format: ArchiveFormat, members: &[Made]) -> (Layout, Vec<Vec<u8>>) {
    let mut builder = Builder::new(format, b"top");
    builder.push_top(0o755, version(0, (0, 0), 1)).unwrap();
    let mut folders = vec![(0, b"top/".to_vec())];
    let mut paths = vec![b"top/".to_vec()];
    for (index, made) in members.iter().enumerate() {
        let (parent, base) = folders[made.parent.index(folders.len())].clone();
        let mut path = [&base[..], &made.name].concat();
        let kind = match made.kind {
            0 => MemberType::Folder,
            1 => MemberType::Symlink(&made.target),
            _ => MemberType::File,
        };
        let version = version(made.size, made.modified, index as u64);
        let member =
            Member { parent: Some(parent), name: &made.name, kind, mode: made.mode, version };
        let number = builder.push(&member).unwrap();
        if kind == MemberType::Folder {
            path.push(b'/');
            folders.push((number, path.clone()));
        }
        paths.push(path);
    }
    (builder.finish(), paths)
}

/// The bytes of a range, where every file holds a pattern of its own.
fn bytes(layout: &Layout, range: Range<u64>) -> Vec<u8> {
    joined(layout.pieces(range), |path, _, range| {
        let sum: u64 = path.iter().map(|&byte| u64::from(byte)).sum();
        range.map(|at| (at + sum) as u8).collect()
    })
}

/// The bytes of pieces; `contents` returns those of a file by its path, version and range. All
/// checksums must be known.
fn joined(
    pieces: impl Iterator<Item = ArchivePiece>,
    contents: impl Fn(&[u8], &FileVersion, Range<u64>) -> Vec<u8>,
) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        let before = out.len() as u64;
        let promised = piece.len();
        match piece {
            ArchivePiece::Bytes(bytes) => out.extend_from_slice(&bytes),
            ArchivePiece::File { path, version, offset, len, .. } => {
                out.extend(contents(&path, &version, offset..offset + len));
            }
            ArchivePiece::Checksum { .. } => panic!("a checksum is missing"),
        }
        assert!(promised > 0);
        assert_eq!(out.len() as u64 - before, promised);
    }
    out
}

/// Checks that a range has the bytes that the whole has there.
fn check_range(
    layout: &Layout,
    (a, b): (Index, Index),
    bytes: impl Fn(&Layout, Range<u64>) -> Vec<u8>,
) -> Result<(), TestCaseError> {
    let whole = bytes(layout, 0..layout.len());
    prop_assert_eq!(whole.len() as u64, layout.len());
    let (a, b) = (a.index(whole.len()), b.index(whole.len() + 1));
    let (start, end) = (a.min(b), a.max(b));
    prop_assert_eq!(&bytes(layout, start as u64..end as u64), &whole[start..end]);
    Ok(())
}

/// Merges neighbouring pieces that a range has split.
fn merged(pieces: impl Iterator<Item = ArchivePiece>) -> Vec<ArchivePiece> {
    let mut out: Vec<ArchivePiece> = Vec::new();
    for piece in pieces {
        match (out.last_mut(), piece) {
            (Some(ArchivePiece::Bytes(before)), ArchivePiece::Bytes(bytes)) => {
                before.extend_from_slice(&bytes)
            }
            (
                Some(ArchivePiece::File { path: before, offset: start, len: so_far, .. }),
                ArchivePiece::File { path, offset, len, .. },
            ) if *before == path && *start + *so_far == offset => *so_far += len,
            (_, piece) => out.push(piece),
        }
    }
    out
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
        let (layout, expected) = lay_out(&members);
        let whole = bytes(&layout, 0..layout.len());
        prop_assert_eq!(paths(&whole), expected);
        let mut archive = tar::Archive::new(&whole[..]);
        for (entry, made) in archive.entries().unwrap().skip(1).zip(&members) {
            let entry = entry.unwrap();
            let is_file = made.kind > 1;
            prop_assert_eq!(entry.size(), if is_file { made.size } else { 0 });
            prop_assert_eq!(entry.header().mode().unwrap(), made.mode & 0o777);
            let target = (made.kind == 1).then_some(&made.target[..]);
            let found = entry.link_name_bytes();
            prop_assert_eq!(found.as_deref(), target);
        }
    }

    #[test]
    fn ranges_of_an_archive_of_any_size_meet_without_a_gap(
        members in tree(1 << 58), cuts in vec(any::<u64>(), 3)
    ) {
        let (layout, _) = lay_out(&members);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (layout.len() + 1)).collect();
        cuts.sort_unstable();
        let (start, middle, end) = (cuts[0], cuts[1], cuts[2]);
        let halves = layout.pieces(start..middle).chain(layout.pieces(middle..end));
        let whole = merged(layout.pieces(start..end));
        prop_assert_eq!(whole.iter().map(ArchivePiece::len).sum::<u64>(), end - start);
        prop_assert_eq!(merged(halves), whole);
    }

    #[test]
    fn the_etag_reflects_every_change(members in tree(3_000), which in any::<Index>()) {
        prop_assume!(!members.is_empty());
        let etag = lay_out(&members).0.etag();
        prop_assert_eq!(&lay_out(&members).0.etag(), &etag);
        let index = which.index(members.len());
        let is_file = members[index].kind > 1;
        let changes: [fn(&mut Made); 5] = [
            |made| made.name.push(b'x'),
            |made| made.mode ^= 0o1,
            |made| made.modified.1 ^= 1,
            |made| made.kind = (made.kind.min(2) + 1) % 3,
            |made| made.size += 1,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut others = members.clone();
            change(&mut others[index]);
            // The archive does not contain the length of a folder or link.
            if number != 4 || is_file {
                prop_assert_ne!(&lay_out(&others).0.etag(), &etag, "change {}", number);
            }
        }
    }
}

/// An archive of one file without a top folder.
fn single(version: FileVersion) -> Layout {
    let mut builder = Builder::new(ArchiveFormat::Tar, b"");
    builder.push_top(0o755, version).unwrap();
    let member = Member { parent: None, name: b"f", kind: MemberType::File, mode: 0o644, version };
    builder.push(&member).unwrap();
    builder.finish()
}

#[test]
fn the_etag_is_the_same_in_every_release() {
    // Nothing may depend on a hasher of std or on the machine. If this fails on purpose, the
    // number of the format has to change too.
    let mut builder = Builder::new(ArchiveFormat::Tar, b"top");
    builder.push_top(0o755, version(0, (1, 2), 3)).unwrap();
    let kind = MemberType::Symlink(b"target");
    let version = version(6, (4, 5), 6);
    builder.push(&Member { parent: Some(0), name: b"l", kind, mode: 0o777, version }).unwrap();
    assert_eq!(builder.finish().etag(), "\"d50c4534c654289baba43fa3f4c8f543\"");
}

#[test]
fn a_replaced_file_with_the_same_metadata_has_another_etag() {
    let [first, second] = [8, 9].map(|inode| single(version(5, (1, 1), inode)).etag());
    assert_ne!(first, second);
}

#[test]
fn an_empty_archive_is_two_blocks_of_zeros() {
    let layout = Builder::new(ArchiveFormat::Tar, b"").finish();
    assert!(layout.is_empty());
    assert_eq!(bytes(&layout, 0..u64::MAX), [0; 1_024]);
    assert_eq!(layout.pieces(1_024..2_000).count(), 0);
    let backwards = Range { start: 9, end: 3 };
    assert_eq!(layout.pieces(backwards).count(), 0);
}

#[test]
fn an_archive_longer_than_any_file_is_refused() {
    let mut builder = Builder::new(ArchiveFormat::Tar, b"");
    let version = version(i64::MAX as u64 - 4_096, (0, 0), 1);
    let member = Member { parent: None, name: b"f", kind: MemberType::File, mode: 0o644, version };
    builder.push(&member).unwrap();
    let error = builder.push(&member).unwrap_err();
    assert!(error.to_string().contains("8 EiB"), "{error}");
}

#[test]
fn a_top_folder_that_leads_elsewhere_is_left_out() {
    for top in [&b".."[..], b".", b"/", b"a/..", b"/etc"] {
        let mut builder = Builder::new(ArchiveFormat::Tar, top);
        let version = version(0, (0, 0), 1);
        let member =
            Member { parent: None, name: b"f", kind: MemberType::File, mode: 0o644, version };
        builder.push(&member).unwrap();
        let layout = builder.finish();
        assert_eq!(paths(&bytes(&layout, 0..layout.len())), [b"f"]);
    }
}

#[test]
fn many_small_members_are_handed_over_in_bounded_pieces() {
    let mut builder = Builder::new(ArchiveFormat::Tar, b"");
    let version = version(0, (0, 0), 1);
    for index in 0..10_000_u32 {
        let name = index.to_string().into_bytes();
        let member =
            Member { parent: None, name: &name, kind: MemberType::File, mode: 0o644, version };
        builder.push(&member).unwrap();
    }
    let layout = builder.finish();
    assert!(layout.pieces(0..layout.len()).all(|piece| piece.len() < 70_000));
    assert_eq!(bytes(&layout, 0..layout.len()).len(), 10_000 * 512 + 1_024);
}
