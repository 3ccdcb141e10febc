#![allow(clippy::single_range_in_vec_init)] // lists of ranges are what is meant

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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

fn open(folder: &Path) -> OwnedFd {
    File::open(folder).expect("a folder").into()
}

/// A journal and its file, of which the first 60 bytes of a piece were saved and 90 have come.
fn saved_in_part(folder: &Path, name: &OsStr) -> (Journal<Subject>, File, usize) {
    let part = File::create(folder.join("part")).expect("a file");
    let journal = Journal::create(open(folder), name, subject()).expect("a journal");
    let piece = journal.begin(&(0..100));
    journal.record_progress(piece, 60);
    journal.save(&part).expect("saved");
    journal.record_progress(piece, 90);
    (journal, part, piece)
}

#[test]
fn journal_entries_are_read_by_the_next_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::new("journal");
    let journal = Journal::create(open(folder.path()), name, subject()).expect("a journal");
    let first = journal.begin(&(0..100));
    let second = journal.begin(&(100..200));
    let third = journal.begin(&(500..600));
    journal.record_progress(first, 100);
    journal.record_progress(second, 50);
    journal.record_progress(third, 1);
    let known = read(&open(folder.path()), name).expect("it is there");
    assert_eq!(known.subject, subject());
    assert_eq!(known.present, [0..150, 500..501]);
    assert_eq!(journal.present(), known.present);
    let again = Journal::resume(open(folder.path()), name, known).expect("a journal");
    let fourth = again.begin(&(150..200));
    again.record_progress(fourth, 50);
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
        let text = text.replace(&epoch, &other);
        assert!(text.contains(&other));
        fs::write(&path, text).expect("written");
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
    let piece = journal.begin(&(200..300));
    journal.record_progress(piece, 10);
    let known = read(&open(folder.path()), name).expect("it is there");
    assert_eq!((known.present, known.safe), (vec![0..90, 200..210], vec![0..60]));
    // What may be lost is listed nowhere.
    let unopened = openat(open(folder.path()), "part", OFlags::PATH, Mode::empty());
    reopen().save(&File::from(unopened.expect("a path"))).expect_err("it is not open");
    assert!(read(&open(folder.path()), name).is_none());
    drop(part);
}

#[test]
fn a_closed_journal_leaves_its_name_to_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::new("journal");
    let (journal, part, piece) = saved_in_part(folder.path(), name);
    journal.close();
    let other = Subject { inode: 8, ..subject() };
    let next = Journal::create(open(folder.path()), name, other.clone()).expect("a journal");
    journal.save(&part).expect("saved");
    journal.describe(subject).expect("nothing is written");
    journal.forget(&(0..10)).expect_err("nothing is written, so nothing may be removed");
    journal.record_progress(piece, 95);
    let known = read(&open(folder.path()), name).expect("it is there");
    assert_eq!((known.subject, known.present), (other, vec![]));
    let piece = next.begin(&(0..10));
    next.record_progress(piece, 5);
    assert_eq!(read(&open(folder.path()), name).expect("it is there").present, [0..5]);
}

#[test]
fn after_a_failed_sync_only_what_was_saved_before_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::new("journal");
    let (journal, part, piece) = saved_in_part(folder.path(), name);
    let unopened = openat(open(folder.path()), "part", OFlags::PATH, Mode::empty());
    journal.save(&File::from(unopened.expect("a path"))).expect_err("it is not open");
    journal.record_progress(piece, 95);
    let other = journal.begin(&(100..200));
    journal.record_progress(other, 100);
    journal.save(&part).expect("nothing new");
    assert_eq!(journal.present(), [0..60]);
    let known = read(&open(folder.path()), name).expect("a journal");
    assert_eq!((known.present, known.safe), (vec![0..60], vec![0..60]));
}

#[test]
fn a_journal_that_is_damaged_says_nothing_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::new("journal");
    let journal = Journal::create(open(folder.path()), name, subject()).expect("a journal");
    for start in [0, 1000] {
        let piece = journal.begin(&(start..start + 100));
        journal.record_progress(piece, 100);
    }
    let path = folder.path().join(name);
    let text = fs::read(&path).expect("text");
    for cut in 0..text.len() {
        fs::write(&path, &text[..cut]).expect("written");
        let present = read(&open(folder.path()), name).map(|known| known.present);
        let known = [None, Some(vec![]), Some(vec![0..100])];
        assert!(known.contains(&present), "{cut}: {present:?}");
    }
    for (from, to) in [("00100 \n", "99999 \n"), ("journal\":1", "journal\":2")] {
        let text = String::from_utf8_lossy(&text).replace(from, to);
        fs::write(&path, text).expect("written");
        let present = read(&open(folder.path()), name).map(|known| known.present);
        assert!(present.unwrap_or_default().is_empty(), "{to}");
    }
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
            let number = journal.begin(&piece);
            journal.record_progress(number, done);
        }
        let part = File::create(folder.path().join("part")).expect("a file");
        journal.save(&part).expect("saved");
        journal.forget(&forgotten).expect("forgotten");
        assert_eq!(journal.present(), expected, "{forgotten:?}");
        let known = read(&open(folder.path()), name).expect("a journal");
        assert_eq!((&known.present, &known.safe), (&expected, &expected), "{forgotten:?}");
        // What comes after that is in no place of another piece.
        let number = journal.begin(&(100..110));
        journal.record_progress(number, 5);
        let known = read(&open(folder.path()), name).expect("a journal");
        assert_eq!(known.present, [expected, vec![100..105]].concat(), "{forgotten:?}");
    }
}
