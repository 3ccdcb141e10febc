//! Why an archive cannot be read.

/// Why an archive cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TarError {
    /// It ends within a member.
    #[error("the archive ends too early")]
    Cut,
    /// A header is none: its sum is wrong.
    #[error("what was received is no tar archive: a header's sum is wrong")]
    NotTar,
    /// A number in a header is none, or larger than a file can be.
    #[error("a header of the archive has a number that is none")]
    Number,
    /// A PAX record is not as long as it says.
    #[error("a header of the archive has a record that is none")]
    Record,
    /// The names of one member are longer than any file system has them.
    #[error("a header of the archive is too long")]
    TooLong,
    /// It has files with holes, or is one of several volumes.
    #[error("the archive has files with holes or several volumes, which are not understood")]
    Unsupported,
}
