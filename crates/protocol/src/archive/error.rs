//! The errors of a layout.

use std::fmt;

/// The reason why an archive cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// A path is longer than the format allows.
    LongPath {
        /// The maximum length of a path in bytes.
        limit: usize,
    },
    /// The archive would be longer than a file can be.
    TooLarge,
    /// There are more members than can be counted.
    TooMany {
        /// The number of members that were accepted.
        limit: usize,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LongPath { limit } => write!(f, "a path has more than {limit} bytes"),
            Self::TooLarge => f.write_str("the archive would be longer than 8 EiB"),
            Self::TooMany { limit } => write!(f, "the archive has more than {limit} members"),
        }
    }
}

impl std::error::Error for LayoutError {}
