//! The entries of an archive's journal.

use rustix::fs::Timespec;
use rustix::io::Errno;

use crate::journal::FileId;
use crate::tree::dest::FolderAttrs;

/// A file that is large enough to be resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LargeFile {
    /// The offset of its header in the archive.
    pub(super) header: u64,
    /// The offset of its contents in the archive.
    pub(super) data: u64,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) modified: Timespec,
    pub(super) path: Vec<u8>,
    /// The partial file that has the first bytes, once there is one.
    pub(super) part: Option<FileId>,
}

impl LargeFile {
    /// Returns whether a position in the archive is within the contents or at their end, where the
    /// file may still lack its name.
    pub(super) fn holds(&self, position: u64) -> bool {
        self.data <= position && position - self.data <= self.size
    }
}

/// The archive that a folder is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ArchiveId {
    pub(super) url: String,
    /// The strong entity tag, quoted.
    pub(super) etag: String,
    /// The top folder in the archive; may be empty.
    pub(super) top: Vec<u8>,
    pub(super) len: u64,
}

/// The contents of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotedArchive {
    pub(super) origin: ArchiveId,
    /// The position up to which the archive is unpacked.
    pub(super) position: u64,
    /// Whether it was written in the current mount epoch, so that all files have their bytes.
    pub(super) is_same_epoch: bool,
    /// Whether something before the position was left out.
    pub(super) has_omission: bool,
    /// Why permissions or times before the position were refused.
    pub(super) refused: Option<Errno>,
    pub(super) folders: Vec<FolderAttrs>,
    /// The large file that the position is within, if any.
    pub(super) large: Option<LargeFile>,
    /// The path of the last large file, which may be unfinished.
    pub(super) partial: Option<Vec<u8>>,
}
