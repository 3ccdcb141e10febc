//! A folder as one tar or zip that can be resumed, split and sent without copying its files to user
//! space.
//!
//! Both, uncompressed, consist of headers, which follow from the attributes of the files, and the
//! files themselves. So the length is known before the first byte, every range is header bytes or a
//! range of a file, and the ETag follows from the list of members: the archive of a folder can be
//! served like a file. A zip has a CRC-32 after each file besides, and again at its end.
//! [`Checksums`] remembers those; small files are read when they are sent, large ones while earlier
//! members are sent.
//!
//! [`walk()`] reads the attributes into a [`Layout`], which does no I/O and knows each byte's
//! place; [`ArchiveRange`] turns a range of it into chains for the engine and opens the files as it
//! reaches them.

mod beneath;
mod body;
pub(crate) mod checksum;
pub(crate) mod checksum_task;
mod checksums;
mod error;
pub(crate) mod lay_out;
pub(crate) mod layouts;
mod walk;

pub use crate::files::version::engine_version;
pub use beneath::open_member;
pub use body::ArchiveRange;
pub use checksum::ChecksumRequest;
pub use checksums::Checksums;
pub use error::ArchiveError;
pub use underpass_protocol::archive::{
    ArchiveFormat, ArchivePiece, BLOCK, Builder, Fingerprint, Layout, Member, MemberType, padding,
};
pub use walk::{WalkOptions, walk};
