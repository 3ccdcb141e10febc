//! Remembers which downloads were interrupted, and of which version they were.
//!
//! `curl -C -`, `wget -c` and `lftp get -c` resume with `Range: bytes=N-` alone. They do not say
//! of which version they have the beginning (that would be `If-Range`), and append whatever
//! arrives: if the file was replaced meanwhile, the result is half one version, half another, and
//! is reported as a success. HTTP cannot prevent that; only a server that remembers can.
//!
//! Only interrupted downloads are remembered. A client that has all of a file and requests what
//! was appended since, as when following a log, gets that. At worst, a client that is taken for
//! another one has to start over, or to name the version with `If-Range`.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::range;
use crate::request::{Method, Request};

/// A client's download of a target in one version, from some byte to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumableDownload {
    /// Whether it resumes an earlier one without naming the version.
    is_blind: bool,
    /// The hash of client and target.
    key: u64,
    version: u64,
}

/// Interrupted downloads.
#[derive(Debug, Default)]
pub struct Resumptions {
    /// Keyed at random, so that two keys cannot be made the same on purpose.
    hasher: RandomState,
    kept: Mutex<Kept>,
    /// The number of downloads kept, readable without the lock: mostly there are none.
    count: AtomicUsize,
}

impl Resumptions {
    /// Returns the download of the version with this entity tag that this request makes; `None`
    /// if it requests anything but all bytes from some offset on.
    ///
    /// `site` is a number of the site that the client asks: the same target may be another file of
    /// another site. A client is recognised by its address, its `User-Agent`, and what proxies say
    /// of it in `X-Forwarded-For`; a false value only affects the responses to that client.
    #[must_use]
    pub fn download(
        &self,
        client: Option<IpAddr>,
        site: u64,
        request: &Request,
        etag: &str,
    ) -> Option<ResumableDownload> {
        let from = match request.method {
            Method::Get => range::open_start(request)?,
            _ => return None,
        };
        let mut hasher = self.hasher.build_hasher();
        (client, site).hash(&mut hasher);
        request.target.hash(&mut hasher);
        for name in ["user-agent", "x-forwarded-for"] {
            request.field(name).hash(&mut hasher);
        }
        let key = hasher.finish();
        let version = self.hasher.hash_one(etag);
        let mut validators = ["if-range", "if-match", "if-unmodified-since"].into_iter();
        let is_sure = validators.any(|name| request.field(name).is_some());
        Some(ResumableDownload { is_blind: from > 0 && !is_sure, key, version })
    }

    /// Returns whether the client has the beginning of another version, does not say so, and
    /// would append the response to it.
    #[must_use]
    pub fn would_mix(&self, download: &ResumableDownload, now: Instant) -> bool {
        if !download.is_blind || self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let kept = self.lock().get(download.key);
        kept.is_some_and(|kept| {
            kept.version != download.version && now.duration_since(kept.at) < REMEMBERED
        })
    }

    /// Notes that the client did not get all of it.
    pub fn broken_off(&self, download: &ResumableDownload, now: Instant) {
        let mut kept = self.lock();
        kept.put(download.key, Broken { version: download.version, at: now });
        self.count.store(kept.len(), Ordering::Relaxed);
    }

    /// Notes that the client has all of it, and nothing to resume.
    pub fn completed(&self, download: &ResumableDownload) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut kept = self.lock();
        kept.remove(download.key);
        self.count.store(kept.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An interrupted download.
#[derive(Clone, Copy, Debug)]
struct Broken {
    version: u64,
    at: Instant,
}

/// The latest ones, and those before them: when the latest are too many, the others are
/// forgotten, so that keeping one more costs the same whatever there is already.
#[derive(Debug, Default)]
struct Kept {
    latest: HashMap<u64, Broken>,
    before: HashMap<u64, Broken>,
}

impl Kept {
    fn len(&self) -> usize {
        self.latest.len() + self.before.len()
    }

    fn get(&self, key: u64) -> Option<Broken> {
        self.latest.get(&key).or_else(|| self.before.get(&key)).copied()
    }

    fn put(&mut self, key: u64, broken: Broken) {
        if self.latest.len() >= MAX_DOWNLOADS / 2 && !self.latest.contains_key(&key) {
            self.before = std::mem::take(&mut self.latest);
        }
        self.latest.insert(key, broken);
    }

    fn remove(&mut self, key: u64) {
        self.latest.remove(&key);
        self.before.remove(&key);
    }
}

/// The maximum number of remembered downloads, which take less than a megabyte.
const MAX_DOWNLOADS: usize = 16 << 10;

/// The time for which a download is remembered: a client that comes back the next morning is
/// still known.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);
