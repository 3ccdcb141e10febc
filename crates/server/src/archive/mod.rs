//! A folder as one tar archive that can be resumed, split and sent without copying its files to
//! user space.
//!
//! An uncompressed tar consists of headers, which follow from the attributes of the files, and the
//! files themselves, which need not be read. So its length is known before the first byte, every
//! range of it is header bytes or a range of a file, and its ETag follows from the list of members:
//! the archive of a folder can be served like a file.
//!
//! [`walk()`] reads the attributes into a [`Layout`], which does no I/O and knows each byte's
//! place; [`Body`] turns a range of it into chains for the engine and opens the files as it gets to
//! them.

mod beneath;
mod body;
mod error;
pub(crate) mod lay_out; // one walk for several requests
pub(crate) mod layouts; // those that are kept for a moment
mod walk;

pub use crate::files::version::engine_version;
pub use beneath::open_member;
pub use body::Body;
pub use error::ArchiveError;
pub use underpass_protocol::archive::{
    BLOCK, Builder, Fingerprint, Kind, Layout, Member, Piece, padding,
};
pub use walk::{WalkOptions, walk};
