//! The contents of a journal, and the functions that read them.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::fdatasync;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use underpass_engine::atomic_file::{is_ours, open_entry};
use underpass_engine::mount_epoch;
use underpass_sys::await_write_back;

use super::piece::{JournalPiece, LINE, merged, sealed, unsealed};

/// The first line of a journal.
#[derive(Debug, Serialize, Deserialize)]
struct JournalHead<S> {
    /// The version of the format.
    underpass_journal: u32,
    #[serde(flatten)]
    subject: S,
    /// The mount epoch; in older versions the boot id alone.
    #[serde(rename = "boot")]
    epoch: String,
    /// Ranges that are known to be on the disk.
    safe: Vec<(u64, u64)>,
}

/// The contents of a journal.
#[derive(Clone, Debug)]
pub struct JournalContents<S> {
    /// The file that the ranges belong to.
    pub subject: S,
    /// Ranges that have arrived, in ascending order.
    pub present: Vec<Range<u64>>,
    /// The subset of these that is known to be on the disk.
    pub(super) safe: Vec<Range<u64>>,
}

impl<S> JournalContents<S> {
    /// Syncs the file unless all its ranges are known to be on the disk. If that fails, only the
    /// known ones are kept: the kernel drops bytes that it could not write back, and the file may
    /// have zeros in their place.
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

/// Reads the journal of this name as [`try_read`] does; `None` also if it cannot be read.
#[must_use]
pub fn read<S: DeserializeOwned>(folder: &OwnedFd, name: &OsStr) -> Option<JournalContents<S>> {
    try_read(folder, name).ok()?
}

/// Reads the journal of this name; `None` if it is missing, damaged or another user's.
///
/// # Errors
///
/// Those after which a valid journal may still exist, such as a disk error or `EMFILE`.
pub fn try_read<S: DeserializeOwned>(
    folder: &OwnedFd,
    name: &OsStr,
) -> io::Result<Option<JournalContents<S>>> {
    let file = match open_entry(folder, name) {
        Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS | Errno::NXIO) => return Ok(None),
        file => file?,
    };
    if !file.metadata()?.is_file() || !is_ours(&file, folder)? {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(MAX_LEN).read_to_end(&mut bytes)?;
    Ok(parse(folder, &bytes))
}

pub(super) fn parse<S: DeserializeOwned>(
    folder: &OwnedFd,
    bytes: &[u8],
) -> Option<JournalContents<S>> {
    let end = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let (line, rest) = bytes.split_at(end);
    let text = unsealed(line);
    let head: JournalHead<S> = serde_json::from_slice(text.unwrap_or(line)).ok()?;
    // Journals without checksums are trusted as they were then; they get checksums when they are
    // written again.
    let parse: fn(&[u8]) -> _ = match (head.underpass_journal, text) {
        (FORMAT, Some(_)) => JournalPiece::parse,
        (UNSEALED_FORMAT, None) => JournalPiece::parse_unsealed,
        _ => return None,
    };
    let safe = merged(head.safe.iter().map(|(start, end)| *start..*end));
    let is_same_epoch = mount_epoch::current(folder).is_some_and(|now| now == head.epoch);
    let pieces = rest.chunks(LINE).filter(|_| is_same_epoch).filter_map(parse);
    let present = merged(safe.iter().cloned().chain(pieces.map(|piece| piece.present())));
    Some(JournalContents { subject: head.subject, present, safe })
}

/// Returns the first line of a journal.
pub(super) fn first_line<S: Serialize>(
    folder: &OwnedFd,
    subject: S,
    safe: &[Range<u64>],
) -> io::Result<String> {
    let head = JournalHead {
        underpass_journal: FORMAT,
        subject,
        epoch: mount_epoch::current(folder).unwrap_or_default(),
        safe: safe.iter().map(|range| (range.start, range.end)).collect(),
    };
    Ok(sealed(serde_json::to_string(&head)?))
}

/// The version of the format.
const FORMAT: u32 = 2;

/// The version before lines had checksums.
const UNSEALED_FORMAT: u32 = 1;

/// The maximum length of a journal in bytes: enough for a piece of each MiB of 64 GiB, or of each
/// 64 MiB of 4 TiB.
const MAX_LEN: u64 = 4 << 20;
