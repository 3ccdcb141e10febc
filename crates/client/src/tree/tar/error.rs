//! Why an archive cannot be read.

use std::fmt;

/// Why an archive cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TarError {
    /// It ends within a member.
    Cut,
    /// A header is none: its sum is wrong.
    NotTar,
    /// A number in a header is none, or larger than a file can be.
    Number,
    /// A PAX record is not as long as it says.
    Record,
    /// The names of one member are longer than any file system has them.
    TooLong,
    /// It has files with holes, or is one of several volumes.
    Unsupported,
}

impl fmt::Display for TarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cut => "the archive ends too early",
            Self::NotTar => "what was received is no tar archive: a header's sum is wrong",
            Self::Number => "a header of the archive has a number that is none",
            Self::Record => "a header of the archive has a record that is none",
            Self::TooLong => "a header of the archive is too long",
            Self::Unsupported => {
                "the archive has files with holes or several volumes, which are not understood"
            }
        })
    }
}

impl std::error::Error for TarError {}
