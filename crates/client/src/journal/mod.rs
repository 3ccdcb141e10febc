//! The journal of a file that arrives in pieces: a small file next to it that lists which ranges
//! are there.
//!
//! The first line says which file it is, such as its URL and version, and the ranges that are known
//! to be on the disk. After it, each fetched piece has a line of fixed length, `start end done`,
//! which one pwrite(2) overwrites whenever more has arrived. After a kill these lines are exact,
//! because the page cache outlives the process. After a power cut, or after the disk was removed,
//! they may be ahead of the data, so only the ranges on the disk count in another mount epoch.

mod file_id;
mod piece;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind::{QuotaExceeded, StorageFull};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard};

use rustix::fs::{AtFlags, Mode, OFlags, fdatasync, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use underpass_engine::atomic_file::is_ours;
use underpass_engine::mount_epoch;
use underpass_engine::wait::lock;
use underpass_sys::await_write_back;

pub(crate) use file_id::FileId;
pub use piece::without;
use piece::{JournalPiece, LINE, complete, merged};

/// The first line of a journal.
#[derive(Debug, Serialize, Deserialize)]
struct JournalHead<S> {
    /// The version of the format.
    underpass_journal: u32,
    #[serde(flatten)]
    subject: S,
    /// The mount epoch; versions that knew no mounts wrote the boot id alone.
    #[serde(rename = "boot")]
    epoch: String,
    /// Ranges that are known to be on the disk.
    safe: Vec<(u64, u64)>,
}

/// An open journal of a file that `S` describes.
#[derive(Debug)]
pub struct Journal<S> {
    folder: OwnedFd,
    name: OsString,
    /// Held while a new file is written and synced. Progress does not wait for that.
    writing: Mutex<()>,
    /// Boxed, for a download keeps its journal within an enum.
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
    /// The numbers of pieces of which nothing is left, for others.
    void: Vec<usize>,
    /// Whether a sync failed: nothing is added any more.
    has_failed: bool,
    /// Whether the name is left to another journal.
    is_closed: bool,
}

/// The contents of a journal.
#[derive(Clone, Debug)]
pub struct JournalContents<S> {
    /// The file that the ranges belong to.
    pub subject: S,
    /// Ranges that have arrived, in ascending order.
    pub present: Vec<Range<u64>>,
    /// Ranges of these that are known to be on the disk.
    safe: Vec<Range<u64>>,
}

impl<S> JournalContents<S> {
    /// Syncs the file of the ranges if they are not all known to be on the disk, and keeps those
    /// alone that are if it fails: the kernel drops bytes that it could not write back, and a file
    /// can have zeros in their place.
    pub fn confirm(&mut self, file: impl AsFd) {
        if self.is_synced() {
            return;
        }
        match fdatasync(file) {
            Ok(()) => self.safe.clone_from(&self.present),
            // Some file systems cannot sync.
            Err(Errno::INVAL) => {}
            Err(_) => self.present.clone_from(&self.safe),
        }
    }

    /// Does the same without waiting for what is still to be written back: the caller syncs it
    /// later.
    pub fn confirm_later(&mut self, file: impl AsFd) {
        if self.is_synced() {
            return;
        }
        match await_write_back(file.as_fd()) {
            // Some kernels and file systems lack the call.
            Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::SPIPE) => {}
            Err(_) => self.present.clone_from(&self.safe),
        }
    }

    /// Returns whether all ranges are known to be on the disk.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.present == self.safe
    }
}

impl<S: Clone + Serialize> Journal<S> {
    /// Creates a journal and replaces one that has the name.
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

    /// Opens a journal with the contents that were read from it. Nothing is written until they
    /// change.
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

    /// Replaces the description of the file in the journal. `subject` is called when the changes of
    /// other threads are written.
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

    /// Leaves the name to another journal: this one is not written any more. Does not wait for the
    /// disk.
    pub fn close(&self) {
        lock(&self.inner).is_closed = true;
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
        self.write_piece(inner, number);
        number
    }

    /// Records how many bytes of a piece are in the file.
    pub fn record_progress(&self, number: usize, done: u64) {
        let mut inner = lock(&self.inner);
        if !inner.has_failed {
            inner.pieces[number].done = done;
            self.write_piece(inner, number);
        }
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
        // Another thread that writes it writes this line too.
        if let Ok(_writing) = self.writing.try_lock() {
            let _ = self.write();
        }
    }

    /// Removes a range, no piece of which may be in progress, and syncs the journal to the disk:
    /// afterwards its bytes may be removed from the file.
    ///
    /// # Errors
    ///
    /// As fsync(2), and those of [`create`](Self::create), or if it is closed. An earlier journal
    /// may then count.
    pub fn forget(&self, range: &Range<u64>) -> io::Result<()> {
        // No other thread may record an older state of the disk.
        let _writing = lock(&self.writing);
        lock(&self.inner).forget(range);
        match self.write() {
            Err(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => self.overwrite(),
            written => written.and_then(|()| Ok(fsync(&self.folder)?)),
        }?;
        if lock(&self.inner).is_closed {
            // Nothing was written, or another journal may have taken its place.
            return Err(io::Error::other("the journal is closed"));
        }
        Ok(())
    }

    /// Overwrites the journal file with all of it, because a full disk has no room for another
    /// file. The first byte comes last: until then the journal counts for nothing.
    fn overwrite(&self) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        if inner.is_closed {
            return Ok(());
        }
        let head = inner.head(&self.folder)?;
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

    /// Syncs the partial file, and then notes the bytes on the disk, if the journal can be written.
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
                // The bytes that it lists may be lost.
                let _ = remove(&self.folder, &self.name);
            }
            return Err(error);
        }
        let before = std::mem::replace(&mut lock(&self.inner).safe, safe);
        if self.write().is_err() {
            // A power cut costs more bytes.
            lock(&self.inner).safe = before;
        }
        Ok(())
    }

    /// Writes all of it under a temporary name and renames it, unless it is closed. The caller
    /// holds `writing`; other threads can record progress at the same time.
    fn write(&self) -> io::Result<()> {
        let new = new_name(&self.name);
        let (mut file, head, is_synced) = {
            let inner = lock(&self.inner);
            if inner.is_closed {
                return Ok(());
            }
            (create_new(&self.folder, &new)?, inner.head(&self.folder)?, !inner.safe.is_empty())
        };
        let written = file.write_all(head.as_bytes());
        // Lines of pieces count only as long as the page cache has them.
        let written = written.and_then(|()| if is_synced { file.sync_data() } else { Ok(()) });
        let mut inner = lock(&self.inner);
        if inner.is_closed {
            // Another journal may have this temporary name, too.
            return Ok(());
        }
        let lines = inner.lines();
        let written = written.and_then(|()| {
            file.write_all_at(lines.as_bytes(), head.len() as u64)?;
            Ok(renameat(&self.folder, &new, &self.folder, &self.name)?)
        });
        if let Err(error) = written {
            // A disk so full that it has no room for a journal.
            let _ = unlinkat(&self.folder, &new, AtFlags::empty());
            return Err(error);
        }
        (inner.file, inner.pieces_at) = (Some(file), head.len() as u64);
        Ok(())
    }
}

impl<S: Clone + Serialize> JournalState<S> {
    /// Returns the first line.
    fn head(&self, folder: &OwnedFd) -> io::Result<String> {
        let head = JournalHead {
            underpass_journal: FORMAT,
            subject: self.subject.clone(),
            epoch: mount_epoch::current(folder).unwrap_or_default(),
            safe: self.safe.iter().map(|range| (range.start, range.end)).collect(),
        };
        let mut text = serde_json::to_string(&head)?;
        // No line crosses from one page to another, so that each is written whole or not at all.
        let padded = (text.len() + 1).next_multiple_of(LINE);
        text.extend(std::iter::repeat_n(' ', padded - 1 - text.len()));
        text.push('\n');
        Ok(text)
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
                let (start, end) = (range.end, present.end);
                after.push(JournalPiece { start, end, done: end - start });
            }
            piece.end = piece.start.max(range.start);
            piece.done = piece.end - piece.start;
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
        // The head has the rest. A file that is only cut needs no room on a failing disk.
        if let Some(file) = &self.file {
            let _ = file.set_len(self.pieces_at);
        }
    }
}

/// Creates the file of a journal that has no other name yet. A file that an ended process has left
/// is removed first, so no other process writes to this one.
fn create_new(folder: &OwnedFd, new: &OsStr) -> io::Result<File> {
    let _ = unlinkat(folder, new, AtFlags::empty());
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The address may hold secrets.
    Ok(File::from(openat(folder, new, flags, Mode::RUSR | Mode::WUSR)?))
}

/// Reads the journal of this name as [`try_read`]; `None` also if it cannot be read.
#[must_use]
pub fn read<S: DeserializeOwned>(folder: &OwnedFd, name: &OsStr) -> Option<JournalContents<S>> {
    try_read(folder, name).ok()?
}

/// Reads the journal of this name; `None` if there is none, or it is damaged or of another user.
///
/// # Errors
///
/// Those after which it may still be there and valid, as of a disk or for want of descriptors.
pub fn try_read<S: DeserializeOwned>(
    folder: &OwnedFd,
    name: &OsStr,
) -> io::Result<Option<JournalContents<S>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match openat(folder, name, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS | Errno::NXIO) => return Ok(None),
        file => File::from(file?),
    };
    if !file.metadata()?.is_file() || !is_ours(&file, folder)? {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(MAX_LEN).read_to_end(&mut bytes)?;
    Ok(parse(folder, &bytes))
}

fn parse<S: DeserializeOwned>(folder: &OwnedFd, bytes: &[u8]) -> Option<JournalContents<S>> {
    let end = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let head: JournalHead<S> = serde_json::from_slice(&bytes[..end]).ok()?;
    if head.underpass_journal != FORMAT {
        return None;
    }
    let safe = merged(head.safe.iter().map(|(start, end)| *start..*end));
    let is_same_epoch = mount_epoch::current(folder).is_some_and(|now| now == head.epoch);
    let pieces = bytes[end..].chunks(LINE).filter(|_| is_same_epoch);
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
mod tests;
