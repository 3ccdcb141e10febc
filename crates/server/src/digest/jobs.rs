//! Digests that wait to be made, and those that are being made.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use underpass_engine::Version;
use underpass_engine::wait::lock;

use underpass_protocol::digest::Algorithm;

/// A requested digest.
#[derive(Clone, Debug)]
pub(crate) struct DigestRequest {
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) version: Version,
    pub(crate) algorithm: Algorithm,
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

/// A digest that waits to be made, or is being made.
#[derive(Debug)]
pub(crate) struct DigestJob {
    pub(crate) request: DigestRequest,
    /// The senders of all requests that wait for the result.
    pub(crate) waiters: Mutex<Vec<oneshot::Sender<DigestResult>>>,
}

/// The result of a job: the digest is remembered, or there is none.
pub(crate) type DigestResult = Result<(), DigestError>;

impl DigestJob {
    /// Returns whether it makes the requested digest.
    pub(crate) fn is_for(&self, request: &DigestRequest) -> bool {
        self.request.version == request.version && self.request.algorithm == request.algorithm
    }

    /// Returns whether a client still waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        lock(&self.waiters).iter().any(|waiter| !waiter.is_closed())
    }
}
