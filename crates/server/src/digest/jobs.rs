//! Digests that are to be made, and those that are being made.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use underpass_engine::Version;

use crate::digest::Algorithm;

/// A digest that is wanted.
#[derive(Clone, Debug)]
pub(crate) struct DigestRequest {
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) version: Version,
    pub(crate) algorithm: Algorithm,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undigested {
    /// A program is writing to the file.
    Changing,
    /// The file cannot be read.
    Unreadable,
    /// Too many are wanted at once.
    Busy,
}

/// What is to be done, and by how many it is being done.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) waiting: VecDeque<Arc<DigestJob>>,
    pub(crate) running: Vec<Arc<DigestJob>>,
    pub(crate) threads: usize,
}

/// A digest that is to be made, or is being made.
#[derive(Debug)]
pub(crate) struct DigestJob {
    pub(crate) request: DigestRequest,
    /// Those who want to know when it is done.
    pub(crate) askers: Mutex<Vec<oneshot::Sender<DigestResult>>>,
}

/// What comes of a job: the digest is remembered, or there is none.
pub(crate) type DigestResult = Result<(), Undigested>;

impl DigestJob {
    /// Whether it makes the digest that is asked for.
    pub(crate) fn is_for(&self, request: &DigestRequest) -> bool {
        self.request.version == request.version && self.request.algorithm == request.algorithm
    }

    /// Whether a client still waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.askers().iter().any(|asker| !asker.is_closed())
    }

    pub(crate) fn askers(&self) -> MutexGuard<'_, Vec<oneshot::Sender<DigestResult>>> {
        self.askers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
