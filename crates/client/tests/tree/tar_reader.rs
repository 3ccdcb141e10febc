//! Archives as the `tar` crate, GNU tar, bsdtar, Python and our own server write them.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use rustix::fs::Timespec;
use tar::{Builder, EntryType, Header};
use underpass_client::tree::tar::{Decoder, MemberKind, TarError, TarEvent, TarMember};
use underpass_server::archive::{ArchivePiece, WalkOptions, engine_version, open_member, walk};

/// Reads all members of an archive with their contents.
pub(crate) fn read(archive: &[u8]) -> Result<Vec<(TarMember, Vec<u8>)>, TarError> {
    let mut decoder = Decoder::default();
    let mut members = Vec::new();
    let mut rest = archive;
    loop {
        let Some((bytes, behind)) = rest.split_at_checked(decoder.needed()) else {
            return if rest.is_empty() { Ok(members) } else { Err(TarError::Cut) };
        };
        rest = behind;
        match decoder.step(bytes)? {
            TarEvent::More => {}
            TarEvent::End => return Ok(members),
            TarEvent::Member(member) => {
                let Some((contents, behind)) = rest.split_at_checked(member.padded() as usize)
                else {
                    return Err(TarError::Cut);
                };
                rest = behind;
                let contents = contents[..member.size as usize].to_vec();
                members.push((member, contents));
            }
        }
    }
}

fn file(
    path: &[u8],
    contents: &[u8],
    mode: u32,
    (tv_sec, tv_nsec): (i64, i64),
) -> (TarMember, Vec<u8>) {
    let modified = Timespec { tv_sec, tv_nsec };
    let (path, kind, size) = (path.to_vec(), MemberKind::File, contents.len() as u64);
    (TarMember { path, kind, mode, modified, size }, contents.to_vec())
}

/// Returns a header of this kind with the right checksum.
pub(crate) fn header(name: &[u8], kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(7);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    header
}

/// Returns these bytes padded to whole blocks.
pub(crate) fn blocks(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

/// Returns a PAX header with these records.
pub(crate) fn pax(records: &[u8]) -> Vec<u8> {
    let header = header(b"PaxHeader", EntryType::XHeader, records.len() as u64);
    [header.as_bytes().to_vec(), blocks(records)].concat()
}

#[test]
fn each_kind_of_header_is_understood() {
    let plain = |kind| header(b"name", kind, 0).as_bytes().to_vec();
    let long = vec![b'l'; 300];
    let gnu = |letter, text: &[u8]| {
        let text = [text, b"\0"].concat();
        let header = header(b"././@LongLink", EntryType::new(letter), text.len() as u64);
        [header.as_bytes().to_vec(), blocks(&text)].concat()
    };
    let link = |kind: EntryType| {
        let mut header = header(b"name", kind, 0);
        header.as_old_mut().linkname[..6].copy_from_slice(b"target");
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let mut prefixed = header(b"name", EntryType::Regular, 0);
    prefixed.as_ustar_mut().unwrap().prefix[..6].copy_from_slice(b"folder");
    prefixed.set_cksum();
    let member = |path: &[u8], kind| TarMember {
        path: path.to_vec(),
        kind,
        mode: 0o644,
        modified: Timespec { tv_sec: 7, tv_nsec: 0 },
        size: 0,
    };
    let target = || b"target".to_vec();
    let cases: Vec<(&str, Vec<u8>, TarMember)> = vec![
        ("file", plain(EntryType::Regular), member(b"name", MemberKind::File)),
        ("old file", plain(EntryType::new(0)), member(b"name", MemberKind::File)),
        ("contiguous", plain(EntryType::Continuous), member(b"name", MemberKind::File)),
        ("folder", plain(EntryType::Directory), member(b"name", MemberKind::Folder)),
        (
            "old folder",
            header(b"name/", EntryType::Regular, 0).as_bytes().to_vec(),
            member(b"name/", MemberKind::Folder),
        ),
        ("link", link(EntryType::Symlink), member(b"name", MemberKind::Symlink(target()))),
        ("hard link", link(EntryType::Link), member(b"name", MemberKind::HardLink(target()))),
        ("pipe", plain(EntryType::Fifo), member(b"name", MemberKind::Other(b'6'))),
        ("device", plain(EntryType::Char), member(b"name", MemberKind::Other(b'3'))),
        ("prefix", prefixed.as_bytes().to_vec(), member(b"folder/name", MemberKind::File)),
        (
            "GNU long name",
            [gnu(b'L', &long), plain(EntryType::Regular)].concat(),
            member(&long, MemberKind::File),
        ),
        (
            "GNU long link",
            [gnu(b'K', &long), link(EntryType::Symlink)].concat(),
            member(b"name", MemberKind::Symlink(long.clone())),
        ),
        (
            "PAX",
            [
                pax(b"13 path=a\nb\n\n20 mtime=-1.2500000\n21 hdrcharset=BINARY\n"),
                plain(EntryType::Regular),
            ]
            .concat(),
            TarMember {
                modified: Timespec { tv_sec: -2, tv_nsec: 750_000_000 },
                ..member(b"a\nb\n", MemberKind::File)
            },
        ),
        (
            "PAX link",
            [pax(b"15 linkpath=\xff\xfe\n"), link(EntryType::Symlink)].concat(),
            member(b"name", MemberKind::Symlink(b"\xff\xfe".to_vec())),
        ),
        (
            "global PAX, and a volume's name",
            [
                header(b"g", EntryType::XGlobalHeader, 5).as_bytes().to_vec(),
                blocks(b"5 a=\n"),
                header(b"v", EntryType::new(b'V'), 0).as_bytes().to_vec(),
                plain(EntryType::Regular),
            ]
            .concat(),
            member(b"name", MemberKind::File),
        ),
    ];
    for (what, archive, expected) in cases {
        let members = read(&archive).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(members, [(expected, Vec::new())], "{what}");
    }
}

#[test]
fn a_pax_header_applies_to_one_member_only() {
    let first = header(b"one", EntryType::Regular, 0).as_bytes().to_vec();
    let second = header(b"two", EntryType::Regular, 0).as_bytes().to_vec();
    let members = read(&[pax(b"8 path=x\n".as_slice()), first, second].concat());
    // The record is one byte short.
    assert_eq!(members, Err(TarError::Record));
    let first = header(b"one", EntryType::Regular, 0).as_bytes().to_vec();
    let second = header(b"two", EntryType::Regular, 0).as_bytes().to_vec();
    let members = read(&[pax(b"9 path=x\n".as_slice()), first, second].concat()).unwrap();
    let paths: Vec<_> = members.into_iter().map(|(member, _)| member.path).collect();
    assert_eq!(paths, [b"x".to_vec(), b"two".to_vec()]);
}

#[test]
fn sizes_beyond_eight_gib_are_understood_in_both_ways() {
    let size = 9_u64 << 30;
    let own = header(b"name", EntryType::Regular, size);
    let mut decoder = Decoder::default();
    let step = decoder.step(own.as_bytes()).unwrap();
    assert!(matches!(step, TarEvent::Member(member) if member.size == size));
    let mut decoder = Decoder::default();
    let records = b"19 size=9663676416\n";
    let bytes = [pax(records), header(b"name", EntryType::Regular, 0).as_bytes().to_vec()].concat();
    assert_eq!(decoder.step(&bytes[..512]), Ok(TarEvent::More));
    assert!(decoder.is_extended());
    assert_eq!(decoder.step(&bytes[512..1024]), Ok(TarEvent::More));
    let step = decoder.step(&bytes[1024..]).unwrap();
    assert!(matches!(step, TarEvent::Member(member) if member.size == size));
}

#[test]
fn malformed_archives_are_refused() {
    let good = header(b"name", EntryType::Regular, 3).as_bytes().to_vec();
    let mut bad_sum = good.clone();
    bad_sum[0] ^= 1;
    let mut bad_size = good.clone();
    bad_size[124] = b'x';
    let mut summed = Header::from_byte_slice(&bad_size).clone();
    summed.set_cksum();
    let huge = header(b"name", EntryType::Regular, u64::MAX / 2 + 7);
    let long = header(b"name", EntryType::XHeader, 2 << 20);
    let sparse = header(b"name", EntryType::GNUSparse, 0);
    for (archive, error) in [
        (bad_sum, TarError::NotTar),
        (b"<html>".repeat(100)[..512].to_vec(), TarError::NotTar),
        (summed.as_bytes().to_vec(), TarError::Number),
        (huge.as_bytes().to_vec(), TarError::Number),
        (long.as_bytes().to_vec(), TarError::TooLong),
        (sparse.as_bytes().to_vec(), TarError::Unsupported),
        (pax(b"7 a=bcd\n"), TarError::Record),
        (pax(b"12 mtime=1x\n"), TarError::Number),
        (good[..511].to_vec(), TarError::Cut),
        (good, TarError::Cut),
    ] {
        assert_eq!(read(&archive), Err(error));
    }
    assert_eq!(read(&[]), Ok(Vec::new()));
    assert_eq!(read(&[0; 512]), Ok(Vec::new()));
}

#[test]
fn archives_of_other_programs_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("d");
    std::fs::create_dir(&inner).unwrap();
    let long = "\u{e4}".repeat(120);
    std::fs::write(inner.join(&long), "long").unwrap();
    std::fs::write(inner.join("plain"), "contents").unwrap();
    std::os::unix::fs::symlink("plain", inner.join("symlink")).unwrap();
    std::fs::hard_link(inner.join("plain"), inner.join("zlink")).unwrap();
    let mut tried = 0;
    for (program, args) in [
        ("tar", &["--format=gnu"][..]),
        ("tar", &["--format=pax"]),
        ("tar", &["--format=ustar", "--exclude=*\u{e4}*"]),
        ("tar", &["--format=v7", "--exclude=*\u{e4}*"]),
        ("bsdtar", &["--format=pax"]),
        ("bsdtar", &["--format=gnutar"]),
    ] {
        let mut command = Command::new(program);
        command.args(args).args(["-cf", "-", "-C"]).arg(folder.path()).arg("d");
        let Ok(output) = command.stderr(Stdio::null()).output() else { continue };
        let members = read(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"));
        let find = |name: &str| {
            let path = Path::new("d").join(name);
            let is =
                |(member, _): &&(TarMember, Vec<u8>)| member.path == path.as_os_str().as_bytes();
            members.iter().find(is)
        };
        let contents = |name| find(name).map(|(_, contents)| contents.as_slice());
        // The contents are with whichever member comes first.
        let linked = [contents("plain").unwrap(), contents("zlink").unwrap()].concat();
        assert_eq!(linked, b"contents", "{program} {args:?}");
        let (symlink, _) = find("symlink").unwrap();
        assert_eq!(symlink.kind, MemberKind::Symlink(b"plain".to_vec()));
        assert!(args.len() > 1 || contents(&long) == Some(b"long"), "{program} {args:?}");
        tried += 1;
    }
    assert!(tried > 0 || Command::new("tar").arg("--version").output().is_err());
}

#[test]
fn our_own_archive_lists_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("inner")).unwrap();
    std::fs::File::create(folder.path().join("inner/file")).unwrap().write_all(b"bytes").unwrap();
    std::fs::write(folder.path().join("n".repeat(200)), [7; 1000]).unwrap();
    let fd: OwnedFd = std::fs::File::open(folder.path()).unwrap().into();
    let layout = walk(&fd, &WalkOptions { top: b"top", ..WalkOptions::default() }).unwrap();
    let mut archive = Vec::new();
    for piece in layout.pieces(0..layout.len()) {
        match piece {
            ArchivePiece::Bytes(bytes) => archive.extend(bytes),
            ArchivePiece::File { path, version, .. } => {
                let mut file = std::fs::File::from(
                    open_member(&fd, &path, &engine_version(&version)).unwrap(),
                );
                std::io::copy(&mut file, &mut archive).unwrap();
            }
            ArchivePiece::Checksum { .. } => panic!("a tar has none"),
        }
    }
    let members = read(&archive).unwrap();
    let paths: Vec<_> = members.iter().map(|(member, _)| member.path.clone()).collect();
    let long = [b"top/".to_vec(), vec![b'n'; 200]].concat();
    assert_eq!(paths, [b"top/".to_vec(), b"top/inner/".to_vec(), b"top/inner/file".to_vec(), long]);
    for (member, contents) in members {
        let path = member.path.strip_prefix(b"top/").unwrap();
        let path = folder.path().join(std::ffi::OsStr::from_bytes(path));
        let facts = std::fs::metadata(&path).unwrap();
        use std::os::unix::fs::MetadataExt;
        let Timespec { tv_sec, tv_nsec } = member.modified;
        assert_eq!((tv_sec, tv_nsec), (facts.mtime(), facts.mtime_nsec()));
        assert_eq!(member.mode, facts.mode() & 0o777);
        assert_eq!(facts.is_file(), !contents.is_empty());
    }
}

proptest! {
    #[test]
    fn archives_of_the_tar_crate_are_read(
        members in prop::collection::vec(
            (
                prop::collection::vec(prop::collection::vec(b'a'..=b'z', 1..90), 1..5),
                prop::collection::vec(any::<u8>(), 0..2_000),
                0_u32..0o1000,
                0_u32..u32::MAX,
            ),
            0..8,
        )
    ) {
        let mut builder = Builder::new(Vec::new());
        let mut expected = Vec::new();
        for (parts, contents, mode, time) in members {
            let path = parts.join(&b'/');
            let mut header = Header::new_gnu();
            header.set_size(contents.len() as u64);
            header.set_mode(mode);
            header.set_mtime(time.into());
            let name = Path::new(std::ffi::OsStr::from_bytes(&path));
            builder.append_data(&mut header, name, contents.as_slice()).unwrap();
            expected.push(file(&path, &contents, mode, (time.into(), 0)));
        }
        let archive = builder.into_inner().unwrap();
        prop_assert_eq!(read(&archive), Ok(expected));
    }
}
