//! Remembers which downloads were interrupted, and of which version they were.
//!
//! `curl -C -`, `wget -c` and `lftp get -c` resume with `Range: bytes=N-` alone, aria2 and axel
//! also give the last byte. They do not say which version they have the beginning of (that would be
//! `If-Range`), and append whatever arrives: if the file was replaced meanwhile, the result is half
//! one version, half another, and is reported as a success. HTTP cannot prevent that; only a server
//! that remembers can.
//!
//! Only interrupted downloads are remembered, with the bytes that arrived: a client that has looked
//! at the new version for a moment still has the old one up to where it resumes. A client that has
//! all of a file and requests what was appended since, as when following a log, gets that. At
//! worst, a client that is mistaken for another one has to start over, or to name the version with
//! the entity tag in `If-Range`.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::range;
use crate::request::{Method, Request};

/// A client's download of a target in one version, from some byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumableDownload {
    /// Whether it may resume an earlier one without naming the version by its entity tag.
    is_blind: bool,
    /// Whether its client reads the file from the beginning, and resumes nothing.
    starts_over: bool,
    end: End,
    /// The first byte that it requests.
    from: u64,
    /// The hash of client and target.
    key: u64,
    /// A hash, short because each connection keeps one.
    version: u32,
}

/// The last byte that a download requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The end of the file, wherever it is.
    Open,
    /// The last byte of the file, by its number.
    Last,
    /// An earlier byte: a part of a download, or a request for some other purpose.
    Before,
}

impl ResumableDownload {
    /// Returns whether it is remembered if it is interrupted: it must request all bytes to the end.
    #[must_use]
    pub fn is_to_end(&self) -> bool {
        self.end != End::Before
    }
}

/// Interrupted downloads.
#[derive(Debug, Default)]
pub struct Resumptions {
    /// Keyed at random, so that no client can force a collision of two keys.
    hasher: RandomState,
    kept: Mutex<Kept>,
    /// The number of downloads kept, readable without the lock: usually there are none.
    count: AtomicUsize,
}

impl Resumptions {
    /// Returns the download that this request is for, of the version with this entity tag and
    /// length in bytes; `None` if it requests anything but one part from some byte on.
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
        len: u64,
    ) -> Option<ResumableDownload> {
        let (from, last) = match request.method {
            Method::Get => range::one_part(request)?,
            _ => return None,
        };
        let end = match last {
            None => End::Open,
            Some(last) if last.checked_add(1) == Some(len) => End::Last,
            Some(_) => End::Before,
        };
        let mut hasher = self.hasher.build_hasher();
        (client, site).hash(&mut hasher);
        request.target.hash(&mut hasher);
        for name in ["user-agent", "x-forwarded-for"] {
            request.field(name).hash(&mut hasher);
        }
        let key = hasher.finish();
        let version = self.hasher.hash_one(etag) as u32;
        // Another version may have the same date, and `*` is any.
        let names_tag = |name| request.field(name).is_some_and(|value| value.starts_with(b"\""));
        let is_blind = from > 0 && !["if-range", "if-match"].into_iter().any(names_tag);
        // Programs that resume downloads request such a range from the first byte on only if what
        // they have is of that version; the exception is axel, which uses HTTP/1.0.
        let is_range = request.has("range") && last.is_none_or(|last| last > LOOK);
        let starts_over = from == 0 && is_range && request.minor_version > 0;
        Some(ResumableDownload { is_blind, starts_over, end, from, key, version })
    }

    /// Returns whether the client has the beginning of another version, does not say so, and
    /// would append the response to it. If the client reads the file from the beginning, as players
    /// and mounts do, what it has of other versions is forgotten.
    #[must_use]
    pub fn would_mix(&self, download: &ResumableDownload, now: Instant) -> bool {
        let is_affected = download.is_blind || download.starts_over;
        if !is_affected || self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut all = self.lock();
        let Some(kept) = all.get(download.key) else { return false };
        if download.starts_over {
            if kept.iter().flatten().any(|part| part.version != download.version) {
                all.remove(download.key);
                self.count.store(all.len(), Ordering::Relaxed);
            }
            return false;
        }
        let is_recent = |part: &&Part| now.duration_since(part.at) < REMEMBERED;
        let parts = || kept.iter().flatten().filter(is_recent);
        let covering = || parts().find(|part| (part.from..=part.to).contains(&download.from));
        let decisive = match download.end {
            // A player has read the beginning of this version, and seeks in it.
            End::Open if parts().next().is_some_and(|latest| latest.is_read_of(download)) => None,
            End::Open => covering().or_else(|| parts().find(|part| part.may_end_at(download.from))),
            // Readers of archives and tables request other bytes, of any version.
            End::Last | End::Before => covering(),
        };
        decisive.is_some_and(|part| part.version != download.version)
    }

    /// Records that only about this many bytes of it arrived.
    pub fn broken_off(&self, download: &ResumableDownload, arrived: u64, now: Instant) {
        let (from, to) = (download.from, download.from.saturating_add(arrived));
        let mut kept = self.lock();
        kept.put(download.key, Part { version: download.version, from, to, at: now });
        self.count.store(kept.len(), Ordering::Relaxed);
    }

    /// Records that the client has all of it, and nothing to resume.
    pub fn completed(&self, download: &ResumableDownload) {
        // Other parts of it may be missing.
        let is_one_of_several = download.end != End::Open && download.from > 0;
        if is_one_of_several || self.count.load(Ordering::Relaxed) == 0 {
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

/// The part of one version that a client has.
#[derive(Clone, Copy, Debug)]
struct Part {
    version: u32,
    from: u64,
    to: u64,
    at: Instant,
}

impl Part {
    /// Returns whether the client has read more than a little of the version of a download.
    fn is_read_of(&self, download: &ResumableDownload) -> bool {
        self.version == download.version && self.to > LOOK
    }

    /// Returns whether the client may have all bytes up to `place`: as many as it has acknowledged
    /// may be on their way at the same time.
    fn may_end_at(&self, place: u64) -> bool {
        let in_flight = (self.to - self.from).clamp(MIN_IN_FLIGHT, MAX_IN_FLIGHT);
        (self.from..=self.to.saturating_add(in_flight)).contains(&place)
    }
}

/// The parts of a target that a client has, the latest first.
type Parts = [Option<Part>; MAX_VERSIONS];

/// Two generations of entries: when the newer one is full, the older one is dropped, so that
/// adding an entry always costs the same.
#[derive(Debug, Default)]
struct Kept {
    latest: HashMap<u64, Parts>,
    before: HashMap<u64, Parts>,
}

impl Kept {
    fn len(&self) -> usize {
        self.latest.len() + self.before.len()
    }

    fn get(&self, key: u64) -> Option<Parts> {
        self.latest.get(&key).or_else(|| self.before.get(&key)).copied()
    }

    fn put(&mut self, key: u64, mut part: Part) {
        let mut parts = self.get(key).unwrap_or_default();
        let is_same = |other: &Part| other.version == part.version;
        let place = parts.iter().position(|other| other.as_ref().is_none_or(is_same));
        let place = place.unwrap_or(MAX_VERSIONS - 1);
        if let Some(before) = parts[place].filter(is_same) {
            part.from = part.from.min(before.from);
            part.to = part.to.max(before.to);
        }
        parts[..=place].rotate_right(1);
        parts[0] = Some(part);
        if self.latest.len() >= MAX_DOWNLOADS / 2 && !self.latest.contains_key(&key) {
            self.before = std::mem::take(&mut self.latest);
        }
        self.latest.insert(key, parts);
    }

    fn remove(&mut self, key: u64) {
        self.latest.remove(&key);
        self.before.remove(&key);
    }
}

/// The maximum number of remembered downloads, which take less than four megabytes.
const MAX_DOWNLOADS: usize = 16 << 10;

/// The number of bytes up to which a client has only probed a version, as aria2 does first.
const LOOK: u64 = 256 << 10;

/// The minimum number of bytes assumed to be in flight to a client: TCP's initial window.
const MIN_IN_FLIGHT: u64 = 64 << 10;

/// The maximum number of bytes assumed to be in flight: the buffers of a fast and long path.
const MAX_IN_FLIGHT: u64 = 4 << 20;

/// The maximum number of versions of one target of which a client is known to have a part.
const MAX_VERSIONS: usize = 3;

/// The time for which a download is remembered: a client that comes back the next morning is
/// still recognized.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);
