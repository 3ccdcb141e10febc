//! The journal of a file that arrives in pieces: a small file next to it that lists which ranges
//! are there.
//!
//! The first line says which file it is, such as its URL and version, and the ranges that are known
//! to be on the disk. After it, each fetched piece has a line of fixed length, `start end done`,
//! which one pwrite(2) overwrites whenever more has arrived. After a kill these lines are exact,
//! because the page cache outlives the process. After a power cut, or after the disk was removed,
//! they may be ahead of the data, so only the ranges on the disk count in another session.

mod piece;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use rustix::fs::{AtFlags, Mode, OFlags, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use underpass_engine::session;
use underpass_engine::wait::{lock, unpoison};

pub use piece::without;
use piece::{JournalPiece, LINE, complete, merged};

/// The first line of a journal.
#[derive(Debug, Serialize, Deserialize)]
struct JournalHead<S> {
    /// The version of the format.
    underpass_journal: u32,
    #[serde(flatten)]
    subject: S,
    /// The session; versions that knew no mounts wrote the boot id alone.
    #[serde(rename = "boot")]
    session: String,
    /// Ranges that are known to be on the disk.
    safe: Vec<(u64, u64)>,
}

/// An open journal of a file that `S` describes.
#[derive(Debug)]
pub struct Journal<S> {
    folder: OwnedFd,
    name: OsString,
    subject: S,
    /// Boxed, for a download keeps its journal within an enum.
    inner: Box<Mutex<JournalState>>,
}

#[derive(Debug)]
struct JournalState {
    file: File,
    /// The offset of the first piece's line.
    pieces_at: u64,
    pieces: Vec<JournalPiece>,
    /// Ranges that are known to be on the disk.
    safe: Vec<Range<u64>>,
    /// The numbers of pieces of which nothing is left, for others.
    void: Vec<usize>,
    /// Whether a sync failed: nothing is added any more.
    has_failed: bool,
}

/// The contents of a journal.
#[derive(Debug)]
pub struct JournalContents<S> {
    /// The file that the ranges belong to.
    pub subject: S,
    /// Ranges that have arrived, in ascending order.
    pub present: Vec<Range<u64>>,
    /// Ranges of these that are known to be on the disk.
    safe: Vec<Range<u64>>,
}

impl<S: Clone + Serialize> Journal<S> {
    /// Creates a journal and replaces one that has the name.
    ///
    /// # Errors
    ///
    /// As openat(2), write(2) and renameat(2).
    pub fn create(folder: OwnedFd, name: &OsStr, subject: S) -> io::Result<Self> {
        Self::write_new(folder, name, subject, Vec::new(), Vec::new())
    }

    /// Creates a journal with the contents of an earlier one.
    ///
    /// # Errors
    ///
    /// As openat(2), write(2) and renameat(2).
    pub fn resume(folder: OwnedFd, name: &OsStr, known: JournalContents<S>) -> io::Result<Self> {
        let pieces = complete(&known.present);
        Self::write_new(folder, name, known.subject, pieces, known.safe)
    }

    fn write_new(
        folder: OwnedFd,
        name: &OsStr,
        subject: S,
        pieces: Vec<JournalPiece>,
        safe: Vec<Range<u64>>,
    ) -> io::Result<Self> {
        let (file, pieces_at) = write(&folder, name, &subject, &pieces, &safe)?;
        let (void, has_failed) = (Vec::new(), false);
        let inner = JournalState { file, pieces_at, pieces, safe, void, has_failed };
        let inner = Box::new(Mutex::new(inner));
        Ok(Self { folder, name: name.to_owned(), subject, inner })
    }

    /// Returns the file that the ranges belong to.
    #[must_use]
    pub fn subject(&self) -> &S {
        &self.subject
    }

    /// Replaces what the journal says about the file.
    ///
    /// # Errors
    ///
    /// Those of [`create`](Self::create).
    pub fn describe(&mut self, subject: S) -> io::Result<()> {
        let inner = unpoison(self.inner.get_mut());
        let (file, pieces_at) =
            write(&self.folder, &self.name, &subject, &inner.pieces, &inner.safe)?;
        (inner.file, inner.pieces_at) = (file, pieces_at);
        self.subject = subject;
        Ok(())
    }

    /// Adds a piece that is about to be fetched; returns its number for
    /// [`record_progress`](Self::record_progress).
    pub fn begin(&self, piece: &Range<u64>) -> usize {
        let mut inner = lock(&self.inner);
        if inner.has_failed {
            return 0;
        }
        let piece = JournalPiece { start: piece.start, end: piece.end, done: 0 };
        let number = inner.void.pop().unwrap_or(inner.pieces.len());
        match inner.pieces.get_mut(number) {
            Some(void) => *void = piece,
            None => inner.pieces.push(piece),
        }
        inner.write_piece(number);
        number
    }

    /// Records how many bytes of a piece are in the file.
    pub fn record_progress(&self, number: usize, done: u64) {
        let mut inner = lock(&self.inner);
        if !inner.has_failed {
            inner.pieces[number].done = done;
            inner.write_piece(number);
        }
    }

    /// Forgets a range, no piece of which still makes progress, and syncs that to the disk:
    /// afterwards its bytes may go.
    ///
    /// # Errors
    ///
    /// As fsync(2), and those of [`create`](Self::create). An earlier journal may then count.
    pub fn forget(&self, range: &Range<u64>) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        let mut after = Vec::new();
        for (number, piece) in inner.pieces.iter_mut().enumerate() {
            let present = piece.present();
            if present.is_empty() || present.end <= range.start || range.end <= present.start {
                continue;
            }
            if range.end < present.end {
                let (start, end) = (range.end, present.end);
                after.push(JournalPiece { start, end, done: end - start });
            }
            piece.end = piece.start.max(range.start);
            piece.done = piece.end - piece.start;
            if piece.done == 0 {
                inner.void.push(number);
            }
        }
        inner.pieces.extend(after);
        inner.safe = without(&inner.safe, range);
        let (file, pieces_at) =
            write(&self.folder, &self.name, &self.subject, &inner.pieces, &inner.safe)?;
        (inner.file, inner.pieces_at) = (file, pieces_at);
        inner.file.sync_all()?;
        Ok(fsync(&self.folder)?)
    }

    /// Returns the ranges that have arrived, in ascending order.
    #[must_use]
    pub fn present(&self) -> Vec<Range<u64>> {
        merged(lock(&self.inner).pieces.iter().map(JournalPiece::present))
    }

    /// Syncs the partial file, and then notes what is on the disk, if the journal can be written.
    ///
    /// # Errors
    ///
    /// As fdatasync(2).
    ///
    /// # On failure
    ///
    /// The kernel reports such an error once, and any byte since the last sync may be lost: the
    /// journal forgets these bytes, and takes no more.
    pub fn save(&self, part: &File) -> io::Result<()> {
        let safe = self.present();
        if safe == lock(&self.inner).safe {
            return Ok(());
        }
        let synced = part.sync_data();
        let mut inner = lock(&self.inner);
        if let Err(error) = synced {
            // Some file systems cannot sync.
            if error.kind() == io::ErrorKind::InvalidInput {
                return Ok(());
            }
            inner.fail();
            return Err(error);
        }
        // Without it a power cut costs more bytes.
        if let Ok((file, pieces_at)) =
            write(&self.folder, &self.name, &self.subject, &inner.pieces, &safe)
        {
            (inner.file, inner.pieces_at, inner.safe) = (file, pieces_at, safe);
        }
        Ok(())
    }
}

impl JournalState {
    /// Writes the line of a piece. If that fails, the journal lists less than has arrived, which
    /// only costs some bytes after a crash.
    fn write_piece(&self, number: usize) {
        let at = self.pieces_at + (number * LINE) as u64;
        let _ = self.file.write_at(self.pieces[number].line().as_bytes(), at);
    }

    /// Forgets everything that is not known to be on the disk, and takes no more.
    fn fail(&mut self) {
        self.has_failed = true;
        self.pieces = complete(&self.safe);
        self.void.clear();
        // The head has the rest. A file that is only cut needs no room on a failing disk.
        let _ = self.file.set_len(self.pieces_at);
    }
}

/// Writes a journal under a temporary name and renames it; returns the file and the offset of its
/// first piece.
fn write<S: Clone + Serialize>(
    folder: &OwnedFd,
    name: &OsStr,
    subject: &S,
    pieces: &[JournalPiece],
    safe: &[Range<u64>],
) -> io::Result<(File, u64)> {
    let head = JournalHead {
        underpass_journal: FORMAT,
        subject: subject.clone(),
        session: session::current(folder).unwrap_or_default(),
        safe: safe.iter().map(|range| (range.start, range.end)).collect(),
    };
    let mut text = serde_json::to_string(&head)?;
    // No line crosses from one page to another, so that each is written whole or not at all.
    let padded = (text.len() + 1).next_multiple_of(LINE);
    text.extend(std::iter::repeat_n(' ', padded - 1 - text.len()));
    text.push('\n');
    pieces.iter().for_each(|piece| text.push_str(&piece.line()));
    let new = new_name(name);
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The address may hold secrets.
    let mut file = File::from(openat(folder, &new, flags, Mode::RUSR | Mode::WUSR)?);
    let written = file.write_all(text.as_bytes()).and_then(|()| {
        if !safe.is_empty() {
            file.sync_data()?;
        }
        Ok(renameat(folder, &new, folder, name)?)
    });
    if let Err(error) = written {
        // A disk so full that it has no room for a journal.
        let _ = unlinkat(folder, &new, AtFlags::empty());
        return Err(error);
    }
    Ok((file, padded as u64))
}

/// Reads the journal of this name; `None` if there is none or it is damaged.
#[must_use]
pub fn read<S: DeserializeOwned>(folder: &OwnedFd, name: &OsStr) -> Option<JournalContents<S>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(openat(folder, name, flags, Mode::empty()).ok()?);
    let mut bytes = Vec::new();
    file.take(MAX_LEN).read_to_end(&mut bytes).ok()?;
    let end = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let head: JournalHead<S> = serde_json::from_slice(&bytes[..end]).ok()?;
    if head.underpass_journal != FORMAT {
        return None;
    }
    let safe = merged(head.safe.iter().map(|(start, end)| *start..*end));
    let is_same_session = session::current(folder).is_some_and(|now| now == head.session);
    let pieces = bytes[end..].chunks(LINE).filter(|_| is_same_session);
    let pieces = pieces.map_while(JournalPiece::parse).map(|piece| piece.present());
    let present = merged(safe.iter().cloned().chain(pieces));
    Some(JournalContents { subject: head.subject, present, safe })
}

/// Removes the journal of this name and an unfinished one; returns whether there was one.
///
/// # Errors
///
/// As unlinkat(2).
pub fn remove(folder: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    let _ = unlinkat(folder, new_name(name), AtFlags::empty());
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the name that a journal has until it replaces the earlier one.
pub(crate) fn new_name(name: &OsStr) -> OsString {
    let mut new = name.to_owned();
    new.push(".new");
    new
}

/// The version of the format.
const FORMAT: u32 = 1;

/// The maximum length of a journal in bytes: enough for a piece of each MiB of 64 GiB, or of each
/// 64 MiB of 4 TiB.
const MAX_LEN: u64 = 4 << 20;

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // lists of ranges are what is meant
mod tests {
    use std::fs;
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
    fn what_is_noted_is_remembered_by_the_next_process() {
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
        let session = session::current(open(folder.path())).expect("a session");
        let (boot, mount) = session.rsplit_once(' ').expect("two numbers");
        for other in ["another".to_owned(), format!("{boot} 1{mount}")] {
            let text = text.replace(&session, &other);
            assert!(text.contains(&other));
            fs::write(&path, text).expect("written");
            assert_eq!(read(&open(folder.path()), name).expect("it").present, [0..60], "{other}");
        }
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
    fn what_is_forgotten_is_neither_present_nor_safe() {
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
}
