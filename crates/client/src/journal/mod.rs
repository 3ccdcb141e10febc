//! The journal of a file that arrives in pieces: a small file next to it that lists the ranges that
//! have arrived.
//!
//! The first line identifies the file, such as by URL and version, and lists the ranges that are
//! known to be on the disk. Each fetched piece then has a line of fixed length, `start done`, which
//! one pwrite(2) overwrites whenever more has arrived. After a kill these lines are exact, because
//! the page cache outlives the process. After a power cut or the removal of the disk they may be
//! ahead of the data, so only the ranges on the disk count in another mount epoch.
//!
//! Each line ends in its checksum: a flipped bit must not make a hole count as data. If the first
//! line is invalid, the whole journal is ignored; if another line is, only its bytes are missing.

mod contents;
mod file_id;
mod piece;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind::{QuotaExceeded, StorageFull};
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard};

use contents::first_line;
pub use contents::{JournalContents, read, try_read};
pub(crate) use file_id::FileId;
pub use piece::without;
use piece::{JournalPiece, LINE, complete, merged};
use rustix::fs::{AtFlags, Mode, OFlags, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::Serialize;
use underpass_engine::wait::lock;

/// An open journal of a file that `S` describes.
#[derive(Debug)]
pub struct Journal<S> {
    folder: OwnedFd,
    name: OsString,
    /// Held while a new file is written and synced. Recording progress does not wait for it.
    writing: Mutex<()>,
    /// Boxed, because a download keeps its journal within an enum.
    inner: Box<Mutex<JournalState<S>>>,
}

#[derive(Debug)]
struct JournalState<S> {
    subject: S,
    /// `None` until it is written for the first time, see [`Journal::reopen`].
    file: Option<File>,
    /// The offset of the first piece's line.
    pieces_at: u64,
    pieces: Vec<JournalPiece>,
    /// Ranges that are known to be on the disk.
    safe: Vec<Range<u64>>,
    /// The numbers of empty pieces, which others may reuse.
    void: Vec<usize>,
    /// Whether a sync failed: nothing more is recorded then.
    has_failed: bool,
    /// Whether another journal now owns the name.
    is_closed: bool,
}

/// A piece that is being fetched. It gets a line when its first bytes have arrived.
#[derive(Debug)]
pub struct OpenPiece {
    start: u64,
    number: Option<usize>,
}

impl OpenPiece {
    /// Begins a piece at this offset.
    #[must_use]
    pub fn at(start: u64) -> Self {
        Self { start, number: None }
    }
}

impl<S: Clone + Serialize> Journal<S> {
    /// Creates a journal and replaces any existing one of this name.
    ///
    /// # Errors
    ///
    /// As openat(2), write(2) and renameat(2).
    pub fn create(folder: OwnedFd, name: &OsStr, subject: S) -> io::Result<Self> {
        let journal = Self::new(folder, name, subject, Vec::new(), Vec::new());
        journal.write()?;
        Ok(journal)
    }

    /// Creates a journal with the contents of an earlier one.
    ///
    /// # Errors
    ///
    /// As openat(2), write(2) and renameat(2).
    pub fn resume(folder: OwnedFd, name: &OsStr, known: JournalContents<S>) -> io::Result<Self> {
        let journal = Self::reopen(folder, name, known);
        journal.write()?;
        Ok(journal)
    }

    /// Opens a journal whose contents were read before. Nothing is written until they change.
    #[must_use]
    pub fn reopen(folder: OwnedFd, name: &OsStr, known: JournalContents<S>) -> Self {
        Self::new(folder, name, known.subject, complete(&known.present), known.safe)
    }

    fn new(
        folder: OwnedFd,
        name: &OsStr,
        subject: S,
        pieces: Vec<JournalPiece>,
        safe: Vec<Range<u64>>,
    ) -> Self {
        let state = JournalState {
            subject,
            file: None,
            pieces_at: 0,
            pieces,
            safe,
            void: Vec::new(),
            has_failed: false,
            is_closed: false,
        };
        let (name, inner) = (name.to_owned(), Box::new(Mutex::new(state)));
        Self { folder, name, writing: Mutex::default(), inner }
    }

    /// Returns the file that the ranges belong to.
    #[must_use]
    pub fn subject(&self) -> S {
        lock(&self.inner).subject.clone()
    }

    /// Replaces the description of the file in the journal. `subject` is called once no other
    /// thread is writing the journal.
    ///
    /// # Errors
    ///
    /// Those of [`create`](Self::create).
    pub fn describe(&self, subject: impl FnOnce() -> S) -> io::Result<()> {
        let _writing = lock(&self.writing);
        let subject = subject();
        let before = std::mem::replace(&mut lock(&self.inner).subject, subject);
        self.write().inspect_err(|_| lock(&self.inner).subject = before)
    }

    /// Gives the name up to another journal: this one is not written any more. Does not wait for
    /// the disk.
    pub fn close(&self) {
        lock(&self.inner).is_closed = true;
    }

    /// Records that the bytes of a piece up to `end` are in the file.
    pub fn record_progress(&self, piece: &mut OpenPiece, end: u64) {
        let done = end - piece.start;
        let mut inner = lock(&self.inner);
        if inner.has_failed || (done == 0 && piece.number.is_none()) {
            return;
        }
        let number = piece.number.or_else(|| inner.void.pop()).unwrap_or(inner.pieces.len());
        let line = JournalPiece { start: piece.start, done };
        match inner.pieces.get_mut(number) {
            Some(before) => *before = line,
            None => inner.pieces.push(line),
        }
        piece.number = Some(number);
        self.write_piece(inner, number);
    }

    /// Writes the line of a piece. If that fails, the journal lists less than has arrived, which
    /// only costs some bytes after a crash.
    fn write_piece(&self, inner: MutexGuard<'_, JournalState<S>>, number: usize) {
        if let Some(file) = &inner.file {
            let at = inner.pieces_at + (number * LINE) as u64;
            let _ = file.write_at(inner.pieces[number].line().as_bytes(), at);
            return;
        }
        drop(inner);
        // If another thread is writing the journal, it includes this line.
        if let Ok(_writing) = self.writing.try_lock() {
            let _ = self.write();
        }
    }

    /// Removes a range, in which no piece may be in progress, and syncs the journal to the disk:
    /// afterwards the bytes may be removed from the file.
    ///
    /// # Errors
    ///
    /// Those of fsync(2) and [`create`](Self::create), or if it is closed. An earlier journal may
    /// then still be in effect.
    pub fn forget(&self, range: &Range<u64>) -> io::Result<()> {
        // No other thread may record an older state of the disk.
        let _writing = lock(&self.writing);
        lock(&self.inner).forget(range);
        match self.write() {
            Err(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => self.overwrite(),
            written => written.and_then(|()| Ok(fsync(&self.folder)?)),
        }?;
        if lock(&self.inner).is_closed {
            // Nothing was written, or another journal may have replaced it.
            return Err(io::Error::other("the journal is closed"));
        }
        Ok(())
    }

    /// Overwrites the journal file in place, because a full disk has no room for another file. The
    /// first byte is written last: until then the journal is invalid.
    fn overwrite(&self) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        if inner.is_closed {
            return Ok(());
        }
        let head = inner.first_line(&self.folder)?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, &self.name, flags, Mode::empty())?);
        let text = head.clone() + &inner.lines();
        file.write_all_at(b"#", 0)?;
        file.sync_data()?;
        let (first, rest) = text.as_bytes().split_at(1);
        file.write_all_at(rest, 1)?;
        file.set_len(text.len() as u64)?;
        file.sync_data()?;
        file.write_all_at(first, 0)?;
        file.sync_data()?;
        (inner.file, inner.pieces_at) = (Some(file), head.len() as u64);
        Ok(())
    }

    /// Returns the ranges that have arrived, in ascending order.
    #[must_use]
    pub fn present(&self) -> Vec<Range<u64>> {
        merged(lock(&self.inner).pieces.iter().map(JournalPiece::present))
    }

    /// Syncs the partial file and then records what is on the disk, if the journal can be written.
    ///
    /// # Errors
    ///
    /// As fdatasync(2).
    ///
    /// # On failure
    ///
    /// The kernel reports such an error once, and any byte since the last sync may be lost: the
    /// journal forgets these bytes, and accepts no further ones.
    pub fn save(&self, part: &File) -> io::Result<()> {
        let _writing = lock(&self.writing);
        let safe = self.present();
        if safe == lock(&self.inner).safe {
            return Ok(());
        }
        if let Err(error) = part.sync_data() {
            // Some file systems cannot sync.
            if error.kind() == io::ErrorKind::InvalidInput {
                return Ok(());
            }
            let mut inner = lock(&self.inner);
            inner.fail();
            if inner.file.is_none() && !inner.is_closed {
                // The bytes that the journal lists may be lost.
                let _ = remove(&self.folder, &self.name);
            }
            return Err(error);
        }
        let before = std::mem::replace(&mut lock(&self.inner).safe, safe);
        if self.write().is_err() {
            // The bytes since the last save would be lost in a power cut.
            lock(&self.inner).safe = before;
        }
        Ok(())
    }

    /// Writes the whole journal under a temporary name and renames it, unless it is closed. The
    /// caller holds `writing`; other threads can record progress at the same time.
    fn write(&self) -> io::Result<()> {
        let new = new_name(&self.name);
        let (mut file, head, is_synced) = {
            let inner = lock(&self.inner);
            if inner.is_closed {
                return Ok(());
            }
            (
                create_new(&self.folder, &new)?,
                inner.first_line(&self.folder)?,
                !inner.safe.is_empty(),
            )
        };
        let written = file.write_all(head.as_bytes());
        // The lines of pieces need no sync: they only count while the page cache is intact.
        let written = written.and_then(|()| if is_synced { file.sync_data() } else { Ok(()) });
        let mut inner = lock(&self.inner);
        if inner.is_closed {
            // Another journal may be using the same temporary name.
            return Ok(());
        }
        let lines = inner.lines();
        let written = written.and_then(|()| {
            file.write_all_at(lines.as_bytes(), head.len() as u64)?;
            Ok(renameat(&self.folder, &new, &self.folder, &self.name)?)
        });
        if let Err(error) = written {
            // The disk may be too full for a journal.
            let _ = unlinkat(&self.folder, &new, AtFlags::empty());
            return Err(error);
        }
        (inner.file, inner.pieces_at) = (Some(file), head.len() as u64);
        Ok(())
    }
}

impl<S: Clone + Serialize> JournalState<S> {
    fn first_line(&self, folder: &OwnedFd) -> io::Result<String> {
        first_line(folder, &self.subject, &self.safe)
    }

    /// Returns the lines of all pieces.
    fn lines(&self) -> String {
        self.pieces.iter().map(|piece| piece.line()).collect()
    }

    /// Removes a range.
    fn forget(&mut self, range: &Range<u64>) {
        let mut after = Vec::new();
        for (number, piece) in self.pieces.iter_mut().enumerate() {
            let present = piece.present();
            if present.is_empty() || present.end <= range.start || range.end <= present.start {
                continue;
            }
            if range.end < present.end {
                let (start, done) = (range.end, present.end - range.end);
                after.push(JournalPiece { start, done });
            }
            piece.done = range.start.saturating_sub(piece.start);
            if piece.done == 0 {
                self.void.push(number);
            }
        }
        self.pieces.extend(after);
        self.safe = without(&self.safe, range);
    }

    /// Forgets everything that is not known to be on the disk, and accepts no further bytes.
    fn fail(&mut self) {
        self.has_failed = true;
        self.pieces = complete(&self.safe);
        self.void.clear();
        // The first line has the rest. Truncating needs no space, even on a failing disk.
        if let Some(file) = &self.file {
            let _ = file.set_len(self.pieces_at);
        }
    }
}

/// Creates the temporary file of a journal. A file left by a process that has ended is removed
/// first, so that no other process writes to this one.
fn create_new(folder: &OwnedFd, new: &OsStr) -> io::Result<File> {
    let _ = unlinkat(folder, new, AtFlags::empty());
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The URL may contain secrets.
    Ok(File::from(openat(folder, new, flags, Mode::RUSR | Mode::WUSR)?))
}

/// Removes the journal of this name and an unfinished one; returns whether either existed.
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

/// Returns the temporary name that a journal has until it replaces the earlier one.
pub(crate) fn new_name(name: &OsStr) -> OsString {
    let mut new = name.to_owned();
    new.push(".new");
    new
}

#[cfg(test)]
mod tests;
