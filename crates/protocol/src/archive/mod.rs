//! The tar or zip of a folder: the offset of each member, known before a file is opened.
//!
//! The length is known before the first byte is sent, so a download of a folder can be resumed and
//! its parts fetched like those of a file.

mod fingerprint;
mod format;
mod header;
mod layout;
mod pieces;
mod row;
mod zip;

pub use fingerprint::Fingerprint;
pub use format::ArchiveFormat;
pub use header::{BLOCK, MemberType, padding};
pub use layout::{Builder, Layout, LayoutError, Member};
pub use pieces::{ArchivePiece, ArchivePieces};
