//! Other servers that have the same file.
//!
//! Pieces of two servers are only combined if both have the same strong entity tag, or if the
//! digest of the whole file is known and compared at the end. A server that fails or has another
//! file is no longer used.

use std::fs::File;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use underpass_engine::wait::lock;
use underpass_protocol::digest::{Algorithm, Digest};
use underpass_transport::digest::compute;
use url::Url;

use crate::download::SourceServer;
use crate::download::error::{DownloadError, Result};
use crate::download::interpret::StrongValidator;
use crate::http::{HttpClient, Response};

/// Another server that has the file.
#[derive(Debug)]
pub(in crate::download) struct MirrorServer<'c> {
    pub(in crate::download) client: HttpClient<'c>,
    pub(in crate::download) url: Url,
    /// The ranges that it has sent.
    pub(in crate::download) sent: Mutex<Vec<SentRange>>,
}

/// A range of the file that a server has sent.
#[derive(Debug)]
pub(in crate::download) struct SentRange {
    range: Range<u64>,
    /// The digest of these bytes, once the file was found to be wrong.
    digest: Option<Digest>,
}

impl<'c> MirrorServer<'c> {
    /// Returns the server by itself, as the first one to download from.
    pub(in crate::download) fn as_server(&self) -> SourceServer<'_, 'c> {
        SourceServer { client: &self.client, url: &self.url }
    }

    /// Records a range of the file that came from this server.
    pub(in crate::download) fn record_sent(&self, range: Range<u64>) {
        let mut sent = lock(&self.sent);
        match sent.iter_mut().find(|each| each.range.end == range.start) {
            _ if range.is_empty() => {}
            Some(each) => each.range.end = range.end,
            None => sent.push(SentRange { range, digest: None }),
        }
    }

    /// Returns whether a part of the file came from this server.
    pub(in crate::download) fn has_sent(&self) -> bool {
        !lock(&self.sent).is_empty()
    }

    /// Computes the digests of the ranges that it sent, before the wrong file is discarded.
    pub(in crate::download) fn keep_digests(&self, file: &File) {
        for sent in &mut *lock(&self.sent) {
            sent.digest = digest_of(file, &sent.range);
        }
    }

    /// Returns whether a range that it sent differs from the right file.
    pub(in crate::download) fn sent_wrong_bytes(&self, right: &File) -> bool {
        let sent = lock(&self.sent);
        sent.iter().any(|SentRange { range, digest }| {
            let sent = digest.as_ref();
            sent.is_some_and(|sent| digest_of(right, range).is_some_and(|right| right != *sent))
        })
    }
}

/// Returns the digest of a range; `None` if the file cannot be read, which is no server's fault.
fn digest_of(file: &File, range: &Range<u64>) -> Option<Digest> {
    compute(file, range.clone(), &[Algorithm::Sha256], |_| true).ok()?.digests.pop()
}

/// The servers of one round of requests.
pub(in crate::download) struct Sources<'c> {
    mirrors: Vec<Mirror<'c>>,
    /// Whether the first server has failed.
    is_first_dropped: AtomicBool,
    /// Whether the digest of the whole file is compared at the end.
    pub(in crate::download) is_checked: bool,
}

/// A server other than the first one.
pub(in crate::download) struct Mirror<'c> {
    pub(in crate::download) server: &'c MirrorServer<'c>,
    /// The version of its pieces, if it may differ from that of the other servers.
    version: Mutex<Option<StrongValidator>>,
    is_dropped: AtomicBool,
}

impl<'c> Sources<'c> {
    pub(in crate::download) fn new(mirrors: &'c [MirrorServer<'c>], is_checked: bool) -> Self {
        let mirror = |server| Mirror {
            server,
            version: Mutex::default(),
            is_dropped: AtomicBool::new(false),
        };
        let mirrors = mirrors.iter().map(mirror).collect();
        Self { mirrors, is_first_dropped: AtomicBool::new(false), is_checked }
    }

    /// Returns the mirror that a worker uses; `None` for the first server.
    pub(in crate::download) fn of(&self, worker: usize) -> Option<&Mirror<'c>> {
        let is_there = |mirror: &&Mirror<'_>| !mirror.is_dropped.load(Ordering::Relaxed);
        let mirrors: Vec<_> = self.mirrors.iter().filter(is_there).collect();
        let first = usize::from(!self.is_first_dropped.load(Ordering::Relaxed));
        let turn = worker.checked_rem(mirrors.len() + first)?;
        mirrors.get(turn.checked_sub(first)?).copied()
    }

    /// Drops a server that has failed; returns `false` if there is no other one.
    pub(in crate::download) fn drop(&self, mirror: Option<&Mirror<'c>>) -> bool {
        let is_there = |mirror: &Mirror<'_>| !mirror.is_dropped.load(Ordering::Relaxed);
        let Some(mirror) = mirror else {
            let has_others = self.mirrors.iter().any(is_there);
            self.is_first_dropped.fetch_or(has_others, Ordering::Relaxed);
            return has_others;
        };
        mirror.is_dropped.store(true, Ordering::Relaxed);
        !self.is_first_dropped.load(Ordering::Relaxed) || self.mirrors.iter().any(is_there)
    }

    /// Returns the version that the pieces of a mirror must have; `None` for any.
    ///
    /// # Errors
    ///
    /// [`DownloadError::Changed`] if nothing would prove that its pieces fit those of the other
    /// servers, which are of `version`.
    pub(in crate::download) fn wanted(
        &self,
        mirror: &Mirror<'_>,
        version: Option<&StrongValidator>,
    ) -> Result<Option<StrongValidator>> {
        let known = lock(&mirror.version).clone();
        match (known, version) {
            (Some(known), _) => Ok(Some(known)),
            (None, _) if self.is_checked => Ok(None),
            // Dates of different servers are not comparable.
            (None, Some(tag @ StrongValidator::Tag(_))) => Ok(Some(tag.clone())),
            (None, _) => Err(DownloadError::Changed),
        }
    }
}

impl Mirror<'_> {
    /// Records the version of the first piece, which all others must have.
    pub(in crate::download) fn record_version(&self, response: &Response) {
        let mut version = lock(&self.version);
        *version = version.take().or_else(|| StrongValidator::of(response));
    }
}
