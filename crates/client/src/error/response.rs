//! The reason why a response cannot be used.

use std::path::{Path, PathBuf};

use underpass_transport::incoming::ReceiveError;

/// The reason why a response cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidResponse {
    /// The body is broken.
    #[error(transparent)]
    Body(ReceiveError),
    /// The length of the body differs from that of the file.
    #[error("{}", body_length_text(*.bytes, *.expected, .path.as_deref()))]
    BodyLength {
        /// The length of the body in bytes.
        bytes: u64,
        /// The expected length.
        expected: u64,
        /// The path in the tree, if the file belongs to one.
        path: Option<PathBuf>,
    },
    /// It has a content coding that was not requested.
    #[error("it has Content-Encoding {coding}, which was not requested")]
    Encoded {
        /// The coding, such as `gzip`.
        coding: String,
    },
    /// `Content-Range` contradicts the request or the rest of the head.
    #[error("{problem} '{value}'")]
    ContentRange {
        /// What is wrong with the value, up to the value.
        problem: &'static str,
        /// The value of the field.
        value: String,
    },
    /// The head is not valid HTTP/1.1.
    #[error(transparent)]
    Head(httparse::Error),
    /// The server violates HTTP or the protocol of an object store.
    #[error("{0}")]
    Protocol(&'static str),
    /// A redirect has no valid target.
    #[error("redirect to '{location}': {source}")]
    Redirect {
        /// The value of `Location`.
        location: String,
        /// The error of the parser.
        source: url::ParseError,
    },
}

fn body_length_text(bytes: u64, expected: u64, path: Option<&Path>) -> String {
    match path {
        Some(path) => {
            format!("a body of {bytes} bytes for {}, instead of {expected}", path.display())
        }
        None => format!("a body of {bytes} bytes instead of {expected}"),
    }
}
