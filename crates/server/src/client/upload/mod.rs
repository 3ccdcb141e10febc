//! Uploads: a file or a stream goes to a server by PUT, underneath.
//!
//! The head leaves with the beginning of the file as one chain of the engine, and while the bytes
//! go out somebody listens: a server that wants no more says so early, and what it says is worth
//! more than the reset that follows. Where the server can hold what came of a broken upload, the
//! next attempt, even of another process, goes on from there.

mod chunks;
mod condition;
mod exchange;
mod folder;
mod journal;
mod outcome;
mod resumable;
mod uploader;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use underpass_engine::{Integrity, PipePool, Policy, Progress, Source};
use url::Url;

pub use condition::Condition;
pub use folder::{Made, make_folder};
pub use outcome::{UploadError, UploadFailed, Uploaded};
pub use resumable::RESUMABLE_FROM;

use super::Agent;
use super::connection::Connection;

/// What is uploaded, and how.
#[derive(Clone, Copy, Debug)]
pub struct Upload<'u> {
    /// The bytes: of known length, or all up to the end of a stream, which then go in chunks.
    pub source: &'u Source<&'u File>,
    /// Fields of the request that names the target, such as `Repr-Digest`.
    pub fields: &'u [(&'u str, &'u str)],
    /// What has to be at the target.
    pub condition: Condition<'u>,
    /// How the bytes are moved.
    pub manner: Sending<'u>,
    /// Where to remember how to go on, should this process not see the end; nothing is resumed
    /// without. It belongs to this file and this target alone.
    pub journal: Option<&'u Path>,
    /// Failures in a row, without a byte that is kept between them, that are borne.
    pub retries: u32,
}

/// How bytes are moved to a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sending<'a> {
    /// Which mechanisms may move them.
    pub policy: Policy,
    /// Bytes asked for in one system call, instead of the mechanism's own default.
    pub step: Option<usize>,
    /// How sure to be that they are of one version of the file.
    pub integrity: Integrity,
    /// Where pipes come from.
    pub pipes: Option<&'a PipePool>,
    /// Bytes a second at the most.
    pub rate: Option<u64>,
}

/// What happens while something is uploaded.
#[derive(Debug)]
pub enum Event<'e> {
    /// Bytes have moved; what was there before is counted.
    Progress(Progress),
    /// The upload goes on where an earlier one has ended.
    Resumed {
        /// Bytes that the server has already.
        at: u64,
    },
    /// What the server has of an earlier upload is of no use.
    StartedOver {
        /// Why.
        reason: &'e str,
    },
    /// An attempt failed and another follows.
    Again {
        /// Why it failed.
        error: &'e UploadError,
        /// How long to wait first.
        wait: Duration,
        /// Whether it can go on from where it was.
        resumes: bool,
    },
    /// The server sends us elsewhere.
    Redirected {
        /// Where.
        to: &'e Url,
    },
}

/// Who is told what happens.
pub type Tell<'t> = dyn FnMut(&Event<'_>) + Send + 't;

/// Uploads to a URL. `idle` is a connection that may be used if it leads there, and the one that is
/// left is given back with the outcome.
///
/// # Errors
///
/// [`UploadFailed`], which says whether a later call can go on from where it was.
pub fn upload<'a>(
    agent: &Agent<'a>,
    upload: &Upload<'_>,
    url: &Url,
    idle: Option<Connection<'a>>,
    tell: &mut Tell<'_>,
) -> Result<(Uploaded, Option<Connection<'a>>), UploadFailed> {
    uploader::Uploader::new(agent, upload, url, idle, tell).run()
}
