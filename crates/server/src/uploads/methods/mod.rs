//! The methods of uploading a file.

pub(crate) mod patch;
pub(crate) mod put;
pub(crate) mod range;
pub(crate) mod resumable;
