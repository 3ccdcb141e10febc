//! The errors of the arguments of `put`.

use std::path::PathBuf;

use underpass_client::input::UrlError;

/// The reason why the arguments of `put` are invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum PutError {
    #[error("object stores check sha-256 only")]
    DigestOfStore,
    #[error("--digest reads a file before it is sent, and {} can be read only once", .0.display())]
    DigestOfStream(PathBuf),
    #[error("{} is a folder: add -r to send it", .0.display())]
    Folder(PathBuf),
    #[error("name the files and the URL: underpass put FILE... URL")]
    Incomplete,
    #[error("standard input has no name: end the URL in a file name")]
    NamelessInput,
    #[error("several files need a folder: end the URL with /")]
    SeveralToFile,
    #[error("'{word}': {reason}; the last argument is the URL to upload to")]
    Target { word: String, reason: TargetError },
    #[error("the URL is the last argument: underpass put FILE... URL")]
    UrlAsFile,
}

impl crate::failure::UsageError for PutError {}

/// The reason why the last argument of `put` is not a URL to upload to.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetError {
    #[error("it is not UTF-8")]
    Encoding,
    /// Another file would be replaced.
    #[error("what follows a # is not sent; in a name, write %23")]
    Fragment,
    #[error(transparent)]
    Url(#[from] UrlError),
}
