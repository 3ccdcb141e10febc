//! The archive as GNU tar and libarchive unpack it: names, bytes, times, modes and targets.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use tar::EntryType;
use underpass_server::archive::ArchivePiece;

use crate::rig::{awkward, contents, deep, fed, folder, has, layout_of, opened, paths, read};

/// Unpacks the archive of the awkward folder, in this character set.
fn unpacks(program: &str, locale: &str) {
    if !has(program) {
        return;
    }
    let (root, target) = (folder(), folder());
    awkward(root.path());
    let layout = layout_of(root.path());
    let whole = read(&layout, &opened(root.path()), 0..layout.len());
    let mut command = Command::new(program);
    command.env("LC_ALL", locale).args(["-x", "-p", "-f", "-", "-C"]).arg(target.path());
    let output = fed(&mut command, &whole);
    let messages = String::from_utf8_lossy(&output.stderr);
    let is_known = |line: &str| {
        // GNU tar's remarks about what it has unpacked all the same.
        line.contains("implausibly old time stamp 1969") || line.contains("keyword 'hdrcharset'")
    };
    let unknown: Vec<_> = messages.lines().filter(|line| !is_known(line)).collect();
    assert!(output.status.success() && unknown.is_empty(), "{program}: {unknown:?}");
    let (expected, found) = (contents(root.path()), contents(&target.path().join("top")));
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(found, expected, "{}", expected.0.display());
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn gnu_tar_unpacks_what_was_in_the_folder() {
    unpacks("tar", "C.UTF-8");
}

#[test]
fn gnu_tar_unpacks_names_as_they_are_without_a_character_set() {
    unpacks("tar", "C");
}

#[test]
fn bsdtar_unpacks_what_was_in_the_folder() {
    unpacks("bsdtar", "C.UTF-8");
}

/// What both archives must have of each member, whatever the unpacking program could not set:
/// path, kind, target or contents.
fn members(archive: &[u8]) -> Vec<(Vec<u8>, EntryType, Vec<u8>)> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut contents = entry.link_name_bytes().unwrap_or_default().into_owned();
        entry.read_to_end(&mut contents).unwrap();
        (entry.path_bytes().into_owned(), entry.header().entry_type(), contents)
    });
    entries.collect()
}

#[test]
fn paths_longer_than_the_kernel_takes_are_unpacked() {
    let (root, target) = (folder(), folder());
    deep(root.path(), 40, &"d".repeat(200));
    let layout = layout_of(root.path());
    let whole = read(&layout, &opened(root.path()), 0..layout.len());
    let mut listed: Vec<u8> = Vec::new();
    for path in paths(&whole) {
        listed.extend_from_slice(&path);
        listed.push(b'\n');
    }
    for program in ["tar", "bsdtar"] {
        if has(program) {
            assert!(fed(Command::new(program).args(["-t", "-f", "-"]), &whole).stdout == listed);
        }
    }
    if has("bsdtar") {
        // GNU tar cannot; libarchive can, but loses the way back to set times and owners, as it
        // does with its own archives.
        fed(Command::new("bsdtar").args(["-x", "-f", "-", "-C"]).arg(target.path()), &whole);
        let top = target.path().join("top");
        let again = layout_of(&top);
        assert!(members(&read(&again, &opened(&top), 0..again.len())) == members(&whole));
    }
}

#[test]
fn files_over_8_gib_are_listed_with_their_size() {
    let root = folder();
    let sizes: [u64; 4] = [(8 << 30) - 1, 8 << 30, (8 << 30) + 1, 3 << 40];
    for (index, size) in sizes.into_iter().enumerate() {
        let file = File::create(root.path().join(format!("large{index}"))).unwrap();
        file.set_len(size).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    }
    fs::write(root.path().join("small"), "x").unwrap();
    let layout = layout_of(root.path());
    // Only what is not in the files is written; they hold nothing but zeros.
    let archive = File::create(root.path().join("archive")).unwrap();
    let mut at = 0;
    for piece in layout.pieces(0..layout.len()) {
        if let ArchivePiece::Bytes(bytes) = &piece {
            archive.write_all_at(bytes, at).unwrap();
        }
        at += piece.len();
    }
    assert_eq!(at, layout.len());
    archive.set_len(at).unwrap();
    for program in ["tar", "bsdtar"] {
        if !has(program) {
            continue;
        }
        let mut command = Command::new(program);
        let output = fed(command.arg("-tvf").arg(root.path().join("archive")), b"");
        let list = String::from_utf8(output.stdout).unwrap();
        assert_eq!(list.lines().count(), 1 + sizes.len() + 1, "{list}");
        for (index, size) in sizes.into_iter().enumerate() {
            let line = list.lines().find(|line| line.ends_with(&format!("large{index}"))).unwrap();
            assert!(line.contains(&format!(" {size} ")), "{size}: {line}");
        }
    }
}
