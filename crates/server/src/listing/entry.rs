//! What is known of one entry of a folder, and who tells where a symbolic link leads.

use std::io;

use rustix::fs::{FileType, Stat};

/// What the kernel says of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// A folder, a regular file, a link or something else.
    pub file_type: FileType,
    /// The permission bits, with set-user-id, set-group-id and sticky: at most `0o7777`.
    pub permissions: u32,
    /// Bytes in the file; of a folder whatever its file system says.
    pub len: u64,
    /// Last change of the content: seconds since 1970 and nanoseconds.
    pub modified: (i64, u32),
}

impl Attributes {
    /// Whether this is a folder.
    pub fn is_folder(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// A folder or a file of which nothing else was asked: a call less for each of a million names.
    pub(super) fn of_kind(is_folder: bool) -> Self {
        let file_type = if is_folder { FileType::Directory } else { FileType::RegularFile };
        Self { file_type, permissions: 0, len: 0, modified: (0, 0) }
    }

    /// Without the time of the last change: with one that no form can show.
    pub(super) fn timeless(self) -> Self {
        Self { modified: (i64::MAX, 0), ..self }
    }

    /// Whether a request for it can be answered: a folder or a regular file.
    pub(super) fn is_served(&self) -> bool {
        matches!(self.file_type, FileType::Directory | FileType::RegularFile)
    }
}

impl From<&Stat> for Attributes {
    fn from(stat: &Stat) -> Self {
        // The widths of these fields differ between architectures.
        #[allow(clippy::unnecessary_cast)]
        Self {
            file_type: FileType::from_raw_mode(stat.st_mode),
            permissions: stat.st_mode & 0o7777,
            len: stat.st_size as u64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u32),
        }
    }
}

/// Follows symbolic links by the rules of the server.
///
/// The listing itself never follows one: it has the descriptor of one folder, and a link may lead
/// anywhere. Whoever knows the root and what may be left does it.
pub trait Resolve {
    /// The attributes of what this path leads to, all links followed.
    ///
    /// # Errors
    ///
    /// Any, when the path leads nowhere or out of what may be served. The entry is then left out.
    fn resolve(&self, path_below_root: &[u8]) -> io::Result<Attributes>;
}

/// An entry that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its name, as the kernel has it.
    pub(super) name: Box<[u8]>,
    /// The entry itself is a link; the attributes are those of what it leads to.
    pub(super) is_symlink: bool,
    /// What it is.
    pub(super) attributes: Attributes,
}
