//! What can be wrong with the words after `put`.

use std::ffi::OsString;
use std::path::PathBuf;

/// Why the words make no upload.
#[derive(Debug, thiserror::Error)]
pub(super) enum PutError {
    #[error("an object store checks sha-256 alone")]
    DigestOfStore,
    #[error("--digest has to read it before it is sent, which {} is not for", .0.display())]
    DigestOfStream(PathBuf),
    #[error("{} is a folder: -r sends it", .0.display())]
    Folder(PathBuf),
    #[error("say what to send and where to: underpass put FILE... URL")]
    Incomplete,
    #[error("standard input has no name: the URL has to, it must not end in /")]
    NamelessInput,
    #[error("several files go into a folder: end the URL with /")]
    SeveralToFile,
    #[error("'{}': {reason}; the last word says where to", .word.display())]
    Target { word: OsString, reason: String },
}

impl crate::failure::UsageError for PutError {}
