//! Requests for digests, and their results.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use underpass_engine::Version;
use underpass_protocol::FileVersion;
use underpass_protocol::digest::{Algorithm, Hasher};

use crate::files::version::facts;

/// A requested digest.
#[derive(Clone, Debug)]
pub(crate) struct DigestRequest {
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) version: Version,
    pub(crate) algorithm: Algorithm,
}

/// Identifies a digest: requests with the same key wait for the same job.
pub(crate) type DigestKey = (FileVersion, Algorithm);

impl DigestRequest {
    pub(super) fn key(&self) -> DigestKey {
        (facts(&self.version), self.algorithm)
    }
}

/// A digest of the first bytes of a file.
pub(super) struct PartialDigest {
    pub(super) request: DigestRequest,
    pub(super) hasher: Hasher,
    /// The number of bytes that were read.
    pub(super) at: u64,
}

/// The reason why there is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DigestError {
    /// A program is writing to the file.
    Changing,
    /// The file cannot be read.
    Unreadable,
    /// Too many digests are requested at once.
    Busy,
    /// The client has closed the connection, or its side of it.
    Left,
}

/// The result of a request: the digest is remembered, or there is none.
pub(crate) type DigestResult = Result<(), DigestError>;
