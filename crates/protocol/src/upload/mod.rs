//! The meaning of requests that send a file, or a part of one: which part, of which upload, and
//! under which name the part is stored until the rest arrives. This module is pure, and the same
//! for both sides.

mod content_range;
mod id;
mod owner;
mod partial;
mod resumable;
mod update_range;

pub use content_range::{BadContentRange, ContentRange};
pub use id::{UploadId, version_hash, without_tokens};
pub use owner::Owner;
pub use partial::{PartId, Token, is_partial_name, owner_tag, partial_name};
pub use resumable::{Problem, UploadFields, UploadLimits};
pub use update_range::UpdateRange;

/// The interop version of the draft: 8 is that of -12, which is followed here. A 104 is only sent
/// to and understood by a client of the same version (Draft Version Identification).
pub const INTEROP_VERSION: &str = "8";

/// The media type of a request that continues an upload
/// (draft-ietf-httpbis-resumable-upload 6).
pub const PARTIAL_UPLOAD: &str = "application/partial-upload";
