//! Options and events of uploads.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use underpass_engine::wait::StallDetector;
use underpass_engine::{Integrity, Kind, PipePool, Policy, Progress, Source};
use url::Url;

use super::error::UploadError;
use crate::error::ClientError;
use crate::http::HttpClient;

/// An upload: its source, its condition and its options.
#[derive(Clone, Copy, Debug)]
pub struct Upload<'u> {
    /// The source: of known length, or a stream that is sent in chunks up to its end.
    pub source: &'u Source<&'u File>,
    /// Fields of the request that creates the target, such as `Repr-Digest`.
    pub fields: &'u [(&'u str, &'u str)],
    /// The condition on the target.
    pub condition: Condition<'u>,
    /// The options for sending the bytes.
    pub options: SendOptions<'u>,
    /// The path of the journal; without one, another process cannot resume the upload. It must be
    /// used for this file and this target only.
    pub journal: Option<&'u Path>,
    /// The number of consecutive failures without progress after which the upload is given up.
    pub retries: u32,
}

/// The condition on the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition<'c> {
    /// Nothing is required; an existing target is replaced.
    #[default]
    None,
    /// The target must not exist.
    Absent,
    /// The target must have this strong entity tag; `*` stands for any version.
    Version(&'c str),
}

impl<'c> Condition<'c> {
    /// Returns the field that sends the condition to the server.
    pub(crate) fn field(self) -> Option<(&'static str, &'c str)> {
        match self {
            Self::None => None,
            Self::Absent => Some(("If-None-Match", "*")),
            Self::Version(tag) => Some(("If-Match", tag)),
        }
    }
}

/// The options for sending bytes to a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendOptions<'a> {
    /// The mechanisms that may move them.
    pub policy: Policy,
    /// Bytes per system call, instead of the mechanism's own default.
    pub step: Option<usize>,
    /// The level of protection against bytes of several versions of the file.
    pub integrity: Integrity,
    /// The pool of pipes.
    pub pipes: Option<&'a PipePool>,
    /// The maximum rate in bytes per second.
    pub rate: Option<u64>,
}

impl SendOptions<'_> {
    /// Returns what a server must accept of the body while the client waits for it: less if the
    /// kernel paces the connection.
    pub(crate) fn stall_detector(&self, client: &HttpClient<'_>) -> StallDetector {
        let min_rate = self.rate.map_or(client.min_rate, |rate| client.min_rate.min(rate / 2));
        StallDetector::new(Some(client.timeout), min_rate)
    }
}

/// An event of an upload.
#[derive(Debug)]
pub enum UploadEvent<'e> {
    /// Bytes were sent; the count includes those that the server had before.
    Progress(Progress),
    /// An earlier upload is resumed.
    Resumed {
        /// Bytes that the server has already.
        at: u64,
    },
    /// An earlier upload is discarded.
    StartedOver {
        /// A short reason.
        reason: &'e str,
    },
    /// An attempt failed and will be repeated.
    Retrying {
        /// The reason why it failed.
        error: &'e UploadError,
        /// The time until the next attempt.
        wait: Duration,
        /// Whether the next attempt resumes the upload.
        resumes: bool,
    },
    /// The server redirects to another URL.
    Redirected {
        /// The URL.
        to: &'e Url,
    },
    /// A store did not remove the parts of a failed upload.
    PartsLeft {
        /// The ID of the upload.
        upload: &'e str,
        /// The error of the request for removal.
        error: &'e ClientError,
    },
}

/// The observer of events.
pub type OnEvent<'t> = dyn FnMut(&UploadEvent<'_>) + Send + 't;

/// The field that gives a file its modification time, in seconds since 1970, as defined by ownCloud
/// and supported by our server.
pub const MODIFIED: &str = "X-OC-Mtime";

/// Returns whether an upload of this source may be resumed by another process, so that it gets a
/// [`journal`](Upload::journal): it is a file of at least 1 MiB. Starting a smaller one over is
/// cheaper.
#[must_use]
pub fn is_worth_a_journal(source: &Source<&File>) -> bool {
    is_long(source) && source.kind() == Kind::Regular
}

/// Returns whether resuming an upload of this source is cheaper than starting it over.
pub(super) fn is_long(source: &Source<&File>) -> bool {
    source.promised().is_some_and(|len| len >= RESUMABLE_FROM)
}

/// The minimum size of an upload that can be resumed, in bytes.
const RESUMABLE_FROM: u64 = 1 << 20;
