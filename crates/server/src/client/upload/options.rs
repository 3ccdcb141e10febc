//! What is uploaded and how, and what is reported while it is.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use underpass_engine::{Integrity, PipePool, Policy, Progress, Source};
use url::Url;

use super::error::UploadError;

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
    pub options: SendOptions<'u>,
    /// Where to remember how to go on, should this process not see the end; nothing is resumed
    /// without. It belongs to this file and this target alone.
    pub journal: Option<&'u Path>,
    /// Failures in a row, without a byte that is kept between them, that are borne.
    pub retries: u32,
}

/// What has to be at the target for an upload to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition<'c> {
    /// Nothing is required; what is there is replaced.
    #[default]
    None,
    /// Nothing may be there.
    Absent,
    /// The version with this strong entity tag, or any version if it is `*`.
    Version(&'c str),
}

impl<'c> Condition<'c> {
    /// The field that tells the server.
    pub(super) fn field(self) -> Option<(&'static str, &'c str)> {
        match self {
            Self::None => None,
            Self::Absent => Some(("If-None-Match", "*")),
            Self::Version(tag) => Some(("If-Match", tag)),
        }
    }
}

/// How bytes are moved to a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendOptions<'a> {
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

/// Below this size to begin anew costs less than to ask.
pub const RESUMABLE_FROM: u64 = 1 << 20;
