//! The entries of a folder, their attributes, and the trait that follows symbolic links.

use std::fmt;
use std::io;

use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, Stat, Timespec};

use crate::Readme;

/// The attributes of a file or folder, as the kernel reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The type: a folder, a regular file, a link or something else.
    pub file_type: FileType,
    /// The permission bits with set-user-ID, set-group-ID and sticky: at most `0o7777`; `None` for
    /// an entry that is not on disk.
    pub permissions: Option<u32>,
    /// The size of a file in bytes; for a folder, the value depends on its file system.
    pub len: u64,
    /// When the content was last changed.
    pub modified: Timespec,
}

impl Attributes {
    /// Returns whether this is a folder.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Creates attributes that hold only the type, which saves one call for each of a million
    /// names.
    pub(super) fn of_kind(is_folder: bool) -> Self {
        let file_type = if is_folder { FileType::Directory } else { FileType::RegularFile };
        Self { file_type, permissions: None, len: 0, modified: Timespec::default() }
    }

    /// Creates the attributes of an entry that is not on disk.
    pub(super) fn of_named(entry: &NamedEntry<'_>) -> Self {
        let attributes = Self { len: entry.len, ..Self::of_kind(entry.is_folder) };
        match entry.modified {
            Some(modified) => Self { modified, ..attributes },
            None => attributes.timeless(),
        }
    }

    /// Replaces the modification time by one that no format can show.
    pub(super) fn timeless(self) -> Self {
        Self { modified: Timespec { tv_sec: i64::MAX, tv_nsec: 0 }, ..self }
    }

    /// Returns whether it can be requested: it is a folder or a regular file.
    #[must_use]
    pub fn is_served(&self) -> bool {
        matches!(self.file_type, FileType::Directory | FileType::RegularFile)
    }
}

impl From<&Stat> for Attributes {
    fn from(stat: &Stat) -> Self {
        // The widths of these fields differ between architectures.
        #[allow(clippy::unnecessary_cast)]
        Self {
            file_type: FileType::from_raw_mode(stat.st_mode),
            permissions: Some(stat.st_mode & 0o7777),
            len: stat.st_size as u64,
            modified: Timespec { tv_sec: stat.st_mtime as i64, tv_nsec: stat.st_mtime_nsec as i64 },
        }
    }
}

/// The source of the entries of a listing.
#[derive(Clone, Copy)]
pub enum Entries<'a> {
    /// A folder on disk.
    Folder {
        /// The opened folder. Its cursor is not moved, so it may be shared.
        folder: BorrowedFd<'a>,
        /// Follows symbolic links.
        root: &'a dyn Resolve,
    },
    /// Entries that are already known.
    Named(&'a dyn NamedEntries),
}

impl fmt::Debug for Entries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { folder, .. } => f.debug_tuple("Folder").field(folder).finish(),
            Self::Named(_) => f.debug_tuple("Named").finish_non_exhaustive(),
        }
    }
}

/// The entries of a folder that is not on disk, in any order.
pub trait NamedEntries {
    /// Returns the entry at an index; `None` beyond the last one.
    fn get(&self, index: usize) -> Option<NamedEntry<'_>>;

    /// Returns the README that the page shows, if there is one.
    fn readme(&self) -> Option<&Readme> {
        None
    }
}

/// An entry of a folder that is not on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedEntry<'a> {
    /// The name, without slashes.
    pub name: &'a [u8],
    /// Whether it is a folder.
    pub is_folder: bool,
    /// The size of a file in bytes.
    pub len: u64,
    /// When it was last changed, if known.
    pub modified: Option<Timespec>,
}

/// Follows symbolic links by the rules of the server.
///
/// The listing itself never follows one: it has only the descriptor of one folder, and a link may
/// lead anywhere. The implementation knows the root and which paths may leave it.
pub trait Resolve {
    /// Returns the attributes of the target of this path, with all links followed.
    ///
    /// # Errors
    ///
    /// Any error, if the path has no target or leads out of the root. The entry is then left out.
    fn resolve(&self, path_below_root: &[u8]) -> io::Result<Attributes>;
}

/// An entry of the listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedEntry {
    /// The name, as the kernel reports it.
    pub(super) name: Box<[u8]>,
    /// Whether the entry itself is a link; the attributes are then those of its target.
    pub(super) is_symlink: bool,
    /// The attributes of the entry.
    pub(super) attributes: Attributes,
}
