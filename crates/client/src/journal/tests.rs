#![allow(clippy::single_range_in_vec_init)] // lists of ranges are what is meant

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Deserialize;
use underpass_engine::mount_epoch;

use super::*;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Subject {
    url: String,
    inode: u64,
}

fn subject() -> Subject {
    Subject { url: "http://a/b".to_owned(), inode: 7 }
}

fn read(folder: &OwnedFd, name: &OsStr) -> Option<JournalContents<Subject>> {
    super::read(folder, name)
}

/// Edits each line and recomputes its checksum.
fn edit(path: &Path, edit: impl Fn(&str) -> String) {
    let text = fs::read_to_string(path).expect("text");
    let lines = text.lines().map(|line| piece::sealed(edit(line[..line.len() - 8].trim_end())));
    fs::write(path, lines.collect::<String>()).expect("written");
}

fn open(folder: &Path) -> OwnedFd {
    File::open(folder).expect("a folder").into()
}

/// A journal and its file: of a piece, 60 bytes were saved and 90 have arrived.
fn saved_in_part(folder: &Path, name: &OsStr) -> (Journal<Subject>, File, OpenPiece) {
    let part = File::create(folder.join("part")).expect("a file");
    let journal = Journal::create(open(folder), name, subject()).expect("a journal");
    let mut piece = OpenPiece::at(0);
    journal.record_progress(&mut piece, 60);
    journal.save(&part).expect("saved");
    journal.record_progress(&mut piece, 90);
    (journal, part, piece)
}

#[test]
fn journal_entries_are_read_by_the_next_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::new("journal");
    let journal = Journal::create(open(folder.path()), name, subject()).expect("a journal");
    let mut first = OpenPiece::at(0);
    let mut second = OpenPiece::at(100);
    let mut third = OpenPiece::at(500);
    journal.record_progress(&mut first, 100);
    journal.record_progress(&mut second, 150);
    journal.record_progress(&mut third, 501);
    let known = read(&open(folder.path()), name).expect("it is there");
    assert_eq!(known.subject, subject());
    assert_eq!(known.present, [0..150, 500..501]);
    assert_eq!(journal.present(), known.present);
    let again = Journal::resume(open(folder.path()), name, known).expect("a journal");
    let mut fourth = OpenPiece::at(150);
    again.record_progress(&mut fourth, 200);
    let known = read(&open(folder.path()), name).expect("it is there");
    assert_eq!(known.present, [0..200, 500..501]);
    assert!(remove(&open(folder.path()), name).expect("removed"));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn after_another_boot_or_mount_only_what_was_saved_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::new("journal");
    let _journal = saved_in_part(folder.path(), name);
    let path = folder.path().join(name);
    let text = fs::read_to_string(&path).expect("text");
    assert_eq!(read(&open(folder.path()), name).expect("it").present, [0..90]);
    assert_eq!(text.len() % LINE, 0);
    let epoch = mount_epoch::current(open(folder.path())).expect("a mount epoch");
    let (boot, mount) = epoch.rsplit_once(' ').expect("two numbers");
    for other in ["another".to_owned(), format!("{boot} 1{mount}")] {
        fs::write(&path, &text).expect("written");
        edit(&path, |line| line.replace(&epoch, &other));
        assert_eq!(read(&open(folder.path()), name).expect("it").present, [0..60], "{other}");
    }
}

#[test]
fn a_reopened_journal_is_written_when_it_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (name, path) = (OsStr::new("journal"), folder.path().join("journal"));
    let (journal, part, _) = saved_in_part(folder.path(), name);
    drop(journal);
    let reopen = || {
        let known = read(&open(folder.path()), name).expect("it is there");
        Journal::reopen(open(folder.path()), name, known)
    };
    let before = fs::metadata(&path).expect("a file").ino();
    let journal = reopen();
    assert_eq!(journal.present(), [0..90]);
    assert_eq!(fs::metadata(&path).expect("a file").ino(), before);
    let mut piece = OpenPiece::at(200);
    journal.record_progress(&mut piece, 210);
    let known = read(&open(folder.path()), name).expect("it is there");
    assert_eq!((known.present, known.safe), (vec![0..90, 200..210], vec![0..60]));
    // Bytes that may be lost are not listed any more.
    let unopened = openat(open(folder.path()), "part", OFlags::PATH, Mode::empty());
    reopen().save(&File::from(unopened.expect("a path"))).expect_err("it is not open");
    assert!(read(&open(folder.path()), name).is_none());
    drop(part);
}

#[test]
fn a_closed_journal_leaves_its_name_to_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::new("journal");
    let (journal, part, mut piece) = saved_in_part(folder.path(), name);
    journal.close();
    let other = Subject { inode: 8, ..subject() };
    let next = Journal::create(open(folder.path()), name, other.clone()).expect("a journal");
    journal.save(&part).expect("saved");
    journal.describe(subject).expect("nothing is written");
    journal.forget(&(0..10)).expect_err("nothing is written, so nothing may be removed");
    journal.record_progress(&mut piece, 95);
    let known = read(&open(folder.path()), name).expect("it is there");
    assert_eq!((known.subject, known.present), (other, vec![]));
    let mut piece = OpenPiece::at(0);
    next.record_progress(&mut piece, 5);
    assert_eq!(read(&open(folder.path()), name).expect("it is there").present, [0..5]);
}

#[test]
fn after_a_failed_sync_only_what_was_saved_before_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::new("journal");
    let (journal, part, mut piece) = saved_in_part(folder.path(), name);
    let unopened = openat(open(folder.path()), "part", OFlags::PATH, Mode::empty());
    journal.save(&File::from(unopened.expect("a path"))).expect_err("it is not open");
    journal.record_progress(&mut piece, 95);
    let mut other = OpenPiece::at(100);
    journal.record_progress(&mut other, 200);
    journal.save(&part).expect("nothing new");
    assert_eq!(journal.present(), [0..60]);
    let known = read(&open(folder.path()), name).expect("a journal");
    assert_eq!((known.present, known.safe), (vec![0..60], vec![0..60]));
}

#[test]
fn a_damaged_journal_lists_no_wrong_ranges() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::new("journal");
    let journal = Journal::create(open(folder.path()), name, subject()).expect("a journal");
    for start in [0, 1000] {
        let mut piece = OpenPiece::at(start);
        journal.record_progress(&mut piece, start + 100);
    }
    let path = folder.path().join(name);
    let text = fs::read(&path).expect("text");
    for cut in 0..text.len() {
        fs::write(&path, &text[..cut]).expect("written");
        let present = read(&open(folder.path()), name).map(|known| known.present);
        let known = [None, Some(vec![]), Some(vec![0..100])];
        assert!(known.contains(&present), "{cut}: {present:?}");
    }
    fs::write(&path, &text).expect("written");
    edit(&path, |line| line.replace("journal\":2", "journal\":3"));
    assert!(read(&open(folder.path()), name).is_none());
}

/// File systems without checksums and failing memory may return a flipped bit.
#[test]
fn a_flipped_bit_in_a_journal_makes_nothing_present() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::new("journal");
    let (journal, part, _) = saved_in_part(folder.path(), name);
    let mut piece = OpenPiece::at(1000);
    journal.record_progress(&mut piece, 2000);
    drop(part);
    let text = fs::read(folder.path().join(name)).expect("text");
    let (mut lost, place) = (0, open(folder.path()));
    assert_eq!(read(&place, name).expect("it").present, [0..90, 1000..2000]);
    for (at, bit) in (0..text.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut flipped = text.clone();
        flipped[at] ^= 1 << bit;
        let Some(known) = contents::parse::<Subject>(&place, &flipped) else {
            lost += 1;
            continue;
        };
        assert_eq!(known.subject, subject(), "{at}.{bit}");
        // One of the two lines survives.
        let without = [vec![0..60, 1000..2000], vec![0..90]];
        assert!(without.contains(&known.present), "{at}.{bit}: {:?}", known.present);
    }
    assert_eq!(lost, (text.len() - 2 * LINE) * 8, "each of the first line");
}

#[test]
fn a_journal_without_checksums_counts_until_it_is_written_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::new("journal");
    let epoch = mount_epoch::current(open(folder.path())).expect("a mount epoch");
    let head = format!(
        "{{\"underpass_journal\":1,\"url\":\"http://a/b\",\"inode\":7,\"boot\":\"{epoch}\""
    );
    let pieces = [(0, 100, 90), (200, 300, 100)]
        .map(|(start, end, done)| format!("{start:020} {end:020} {done:020} \n"));
    let text = format!("{head},\"safe\":[[0,60]]}}    \n{}", pieces.concat());
    fs::write(folder.path().join(name), &text[..text.len() - 1]).expect("written");
    assert_eq!(read(&open(folder.path()), name).expect("it").present, [0..90]);
    fs::write(folder.path().join(name), text).expect("written");
    let known = read(&open(folder.path()), name).expect("it");
    assert_eq!((&known.subject, &known.present), (&subject(), &vec![0..90, 200..300]));
    Journal::resume(open(folder.path()), name, known).expect("a journal");
    let text = fs::read_to_string(folder.path().join(name)).expect("text");
    assert!(text.starts_with("{\"underpass_journal\":2,"), "{text}");
    assert_eq!(read(&open(folder.path()), name).expect("it").present, [0..90, 200..300]);
}

#[test]
fn pieces_without_bytes_leave_no_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::new("journal");
    let (journal, _part, _) = saved_in_part(folder.path(), name);
    let len = || fs::metadata(folder.path().join(name)).expect("a file").len();
    let before = len();
    (0..3).for_each(|_| journal.record_progress(&mut OpenPiece::at(200), 200));
    assert_eq!(len(), before);
}

#[test]
fn forgotten_ranges_are_neither_present_nor_safe() {
    for (forgotten, expected) in [
        (0..10, vec![10..40]),
        (5..35, vec![0..5, 35..40]),
        (10..20, vec![0..10, 20..40]),
        (0..50, vec![]),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let name = OsStr::new("journal");
        let journal = Journal::create(open(folder.path()), name, subject()).expect("a journal");
        for (piece, done) in [(0..10, 10), (10..30, 20), (30..60, 10)] {
            let mut number = OpenPiece::at(piece.start);
            journal.record_progress(&mut number, piece.start + done);
        }
        let part = File::create(folder.path().join("part")).expect("a file");
        journal.save(&part).expect("saved");
        journal.forget(&forgotten).expect("forgotten");
        assert_eq!(journal.present(), expected, "{forgotten:?}");
        let known = read(&open(folder.path()), name).expect("a journal");
        assert_eq!((&known.present, &known.safe), (&expected, &expected), "{forgotten:?}");
        // A new piece must not take another one's line.
        let mut number = OpenPiece::at(100);
        journal.record_progress(&mut number, 105);
        let known = read(&open(folder.path()), name).expect("a journal");
        assert_eq!(known.present, [expected, vec![100..105]].concat(), "{forgotten:?}");
    }
}
