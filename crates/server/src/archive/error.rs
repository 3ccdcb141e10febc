//! The reasons why a folder cannot be sent as an archive, or not completely.

use std::fmt;
use std::io;

use rustix::io::Errno;
use underpass_engine::hint::Plain;
use underpass_protocol::archive::LayoutError;

use crate::files::open_files::is_missing;

pub(super) type Result<T, E = ArchiveError> = std::result::Result<T, E>;

/// The reason why a folder cannot be sent as an archive, or not completely.
///
/// An archive is complete or it fails: an unreadable file is never left out silently. Paths are
/// relative to the folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// Too many archives are laid out or sent at this moment.
    #[error("too many archives are requested at once; try again soon")]
    Busy,
    /// The archive is no longer wanted.
    #[error("all clients of the archive have left")]
    Cancelled,
    /// A file has changed since the archive was laid out.
    #[error("{} changed while it was archived", QuotedPath(.path))]
    Changed {
        /// The file.
        path: Vec<u8>,
    },
    /// The kernel reported an error.
    #[error("{} cannot be archived: {}", QuotedPath(.path), Plain(.source))]
    Io {
        /// The path of the file or folder.
        path: Vec<u8>,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A path is longer than the format allows.
    #[error("a path in the folder has more than {limit} bytes; request the tar")]
    LongPath {
        /// The maximum length of a path in bytes.
        limit: usize,
    },
    /// Folders are nested more deeply than the caller allows.
    #[error("{} is more than {limit} folders deep", QuotedPath(.path))]
    TooDeep {
        /// The first folder that is too deep.
        path: Vec<u8>,
        /// The maximum depth.
        limit: usize,
    },
    /// The archive would be longer than the largest offset of a file.
    #[error("the archive would be longer than 8 EiB")]
    TooLarge,
    /// The folder has more members than the caller allows.
    #[error("the folder has more than {limit} entries; request the folders in it")]
    TooMany {
        /// The maximum number of members.
        limit: usize,
    },
}

impl ArchiveError {
    /// Returns the status for the error, to be used if the head of the response is not sent yet.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::LongPath { .. }
            | Self::TooDeep { .. }
            | Self::TooLarge
            | Self::TooMany { .. } => 413,
            Self::Io { source, .. } => match Errno::from_io_error(source) {
                Some(Errno::ACCESS | Errno::PERM) => 403,
                Some(errno) if is_missing(errno) => 404,
                Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::STALE) => {
                    503
                }
                _ => 500,
            },
            // A second try lays the archive out again.
            Self::Busy | Self::Cancelled | Self::Changed { .. } => 503,
        }
    }

    pub(super) fn io(path: &[u8], source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_vec(), source: source.into() }
    }
}

/// Displays a path in quotes, escaped so that it stays on one line.
struct QuotedPath<'a>(&'a [u8]);

impl fmt::Display for QuotedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b"" => f.write_str("the folder"),
            path => write!(f, "{:?}", String::from_utf8_lossy(path)),
        }
    }
}

impl From<LayoutError> for ArchiveError {
    fn from(error: LayoutError) -> Self {
        match error {
            LayoutError::LongPath { limit } => Self::LongPath { limit },
            LayoutError::TooMany { limit } => Self::TooMany { limit },
            _ => Self::TooLarge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_the_name() {
        let error = ArchiveError::io(b"a\n\"b\xff", Errno::ACCESS);
        let line = error.to_string();
        assert!(line.starts_with(r#""a\n\"b"#) && line.contains("ermission denied"), "{line}");
        assert_eq!(line.lines().count(), 1);
        assert!(!line.contains("os error"), "{line}");
        assert_eq!(error.status(), 403);
        let folder = ArchiveError::io(b"", Errno::IO);
        assert!(folder.to_string().starts_with("the folder cannot be archived"), "{folder}");
        assert_eq!(folder.status(), 500);
    }
}
