//! Reads tar archives in the formats ustar, GNU and PAX: bytes in, members out. Pure.
//!
//! An archive is read in steps, each of exactly as many bytes as are certain to be there, so that
//! no byte of a file's contents is read before it is known where they begin.

mod decoder;
mod pax;

pub use decoder::{Decoder, MemberKind, TarEvent, TarMember};

/// The reason why an archive cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TarError {
    /// It ends within a member.
    #[error("the archive ends too early")]
    Cut,
    /// A header is invalid: its checksum is wrong.
    #[error("what was received is not a tar archive: the checksum of a header is wrong")]
    NotTar,
    /// A number in a header is malformed, or larger than a file can be.
    #[error("a header of the archive has a malformed number")]
    Number,
    /// A PAX record is not as long as it says.
    #[error("a header of the archive has a malformed record")]
    Record,
    /// The names of one member are longer than any file system allows.
    #[error("a header of the archive is too long")]
    TooLong,
    /// It has files with holes, or is one of several volumes.
    #[error("the archive has files with holes or several volumes, which are not supported")]
    Unsupported,
}
