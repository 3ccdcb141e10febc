//! A request for an upload, as the thread that receives it sees it.

use crate::request::OwnedRequest;
use crate::upload::Owner;

/// A request for an upload.
#[derive(Debug)]
pub(crate) struct UploadRequest {
    pub(crate) request: OwnedRequest,
    /// The path that is meant, see [`Target::path`](crate::target::Target::path).
    pub(crate) path: Vec<u8>,
    /// Whether the target ended in a slash.
    pub(crate) is_folder: bool,
    /// The upload that the request goes on with, as its address says it.
    pub(crate) id: Option<Vec<u8>>,
    /// Who sends it.
    pub(crate) owner: Owner,
    /// Whether the answer is to say which way the bytes took.
    pub(crate) explains: bool,
}
