//! The methods of uploading a file.

pub(crate) mod patch; // a part of a file
pub(crate) mod put; // a whole file
pub(crate) mod range; // PUT with Content-Range
pub(crate) mod resumable; // the draft of resumable uploads
