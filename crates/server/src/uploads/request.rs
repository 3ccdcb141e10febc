//! A request for an upload, in the form that its thread needs.

use crate::changes::dav::tags::TagConditions;
use underpass_protocol::request::OwnedRequest;
use underpass_protocol::upload::Owner;

/// A request for an upload.
#[derive(Debug)]
pub(crate) struct UploadRequest {
    pub(crate) request: OwnedRequest,
    /// The decoded path, see [`Target::path`](underpass_protocol::request::target::Target::path).
    /// Links on the way may still have to be followed.
    pub(crate) path: Vec<u8>,
    /// Whether the target ended in a slash.
    pub(crate) is_folder: bool,
    /// The id of the upload that the request resumes, taken from its address.
    pub(crate) id: Option<Vec<u8>>,
    /// The owner of the upload.
    pub(crate) owner: Owner,
    /// The entity tags in the `If` field, which are checked again when the file gets its name.
    pub(crate) tags: TagConditions,
    /// Whether the response is to name the mechanisms that moved the bytes.
    pub(crate) explains: bool,
}
