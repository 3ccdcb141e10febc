//! Counters of the whole server, in the text format of Prometheus.
//!
//! Each worker has its own block of counters, so that counting does not take a cache line from
//! another processor; the blocks are summed when the metrics are requested.

mod histogram;
mod render;
mod site;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use underpass_engine::{Mechanism, Report};

pub use site::SiteCounts;

use histogram::{Histogram, nanoseconds};
use underpass_engine::wait::lock;

/// The media type of [`Metrics::render`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The counters of the whole server.
#[derive(Debug)]
pub struct Metrics {
    /// A block for each worker.
    workers: Box<[WorkerMetrics]>,
    /// The number of digests made.
    digests: AtomicU64,
    /// The number of bytes read for digests.
    digest_bytes: AtomicU64,
    /// The number of folders walked for an archive.
    folder_walks: AtomicU64,
    /// The number of listings made; each may serve several clients.
    listings: AtomicU64,
}

impl Metrics {
    /// Creates zeroed counters for this many workers, at least one.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        let workers = (0..workers.max(1)).map(|_| WorkerMetrics::default()).collect();
        Self {
            workers,
            digests: AtomicU64::new(0),
            digest_bytes: AtomicU64::new(0),
            folder_walks: AtomicU64::new(0),
            listings: AtomicU64::new(0),
        }
    }

    /// Returns the block of one worker. Numbers beyond the last worker wrap around: two threads
    /// that share a block count correctly, only more slowly.
    #[must_use]
    pub fn worker(&self, index: usize) -> &WorkerMetrics {
        &self.workers[index % self.workers.len()]
    }

    /// Counts the bytes of a file that were read into user space for a digest, and the digest if it
    /// was completed.
    pub fn digest(&self, read_bytes: u64, is_made: bool) {
        self.digests.fetch_add(is_made.into(), Relaxed);
        self.digest_bytes.fetch_add(read_bytes, Relaxed);
    }

    /// Counts a folder that was walked to lay out its archive.
    pub fn folder_walk(&self) {
        self.folder_walks.fetch_add(1, Relaxed);
    }

    /// Counts a listing.
    pub fn listing(&self) {
        self.listings.fetch_add(1, Relaxed);
    }

    /// Returns how many requests were answered.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.workers.iter().map(|worker| worker.requests.total()).sum()
    }

    /// Returns how many bytes were sent, including heads.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        let bytes = self.workers.iter().map(|worker| {
            let moved = worker.moved.iter().map(|bytes| bytes.load(Relaxed)).sum::<u64>();
            moved + worker.memory.load(Relaxed)
        });
        bytes.sum()
    }

    /// Returns all metrics in the text format of Prometheus, version 0.0.4, of type [`MEDIA_TYPE`].
    ///
    /// The caller passes the number of open transfers from [`Transfers::len`].
    ///
    /// [`Transfers::len`]: crate::transfers::Transfers::len
    #[must_use]
    pub fn render(&self, open_transfers: usize, sites: &[Arc<SiteCounts>]) -> String {
        render::render(self, open_transfers, sites)
    }
}

/// The counters of one worker. Only rare events take a lock.
#[derive(Default)]
#[repr(align(128))] // two cache lines, which current processors fetch together
pub struct WorkerMetrics {
    /// The number of connections accepted.
    accepted: AtomicU64,
    /// The number of accepted connections that have ended.
    closed: AtomicU64,
    /// The number of connections refused.
    refused: AtomicU64,
    /// The number of idle connections closed to make room for others.
    evicted: AtomicU64,
    /// The requests answered, by status.
    requests: Codes,
    /// Bytes by mechanism.
    moved: [AtomicU64; Mechanism::ALL.len()],
    /// The bytes from memory: heads, and bodies that are not files.
    memory: AtomicU64,
    /// Bytes of request bodies by mechanism.
    received: [AtomicU64; Mechanism::ALL.len()],
    /// The number of waits for a file that was not in the page cache.
    cold_waits: AtomicU64,
    /// The total duration of these waits, in nanoseconds.
    cold_nanoseconds: AtomicU64,
    /// The durations of requests.
    durations: Histogram,
    /// The operations that the kernel declined, by mechanism and errno.
    declines: RareCounts,
    /// The responses that were not sent completely, by failure.
    failures: RareCounts,
    /// The connections with TLS, by where they are encrypted and why not by the kernel.
    secured: RareCounts,
    /// The handshakes that failed, by reason.
    handshake_failures: RareCounts,
    /// The number of handshakes that resumed an earlier session.
    resumed: AtomicU64,
}

impl WorkerMetrics {
    /// Counts an accepted connection.
    pub fn connection_opened(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    /// Counts the end of an accepted connection.
    pub fn connection_closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    /// Counts a connection that was refused as one too many, or could not be accepted.
    pub fn connection_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Counts an idle connection that was closed to make room for another.
    pub fn connection_evicted(&self) {
        self.evicted.fetch_add(1, Relaxed);
    }

    /// Counts a completed handshake. `why` is the reason if the kernel does not encrypt.
    pub fn secured(&self, why: Option<&'static str>, is_resumed: bool) {
        let mode = if why.is_some() { "user_space" } else { "kernel" };
        self.secured.count(mode, why.unwrap_or_default().to_owned());
        self.resumed.fetch_add(is_resumed.into(), Relaxed);
    }

    /// Counts a failed handshake: `plain_http`, `closed`, `timeout`, `io`, `tls`.
    pub fn handshake_failed(&self, reason: &'static str) {
        self.handshake_failures.count(reason, String::new());
    }

    /// Counts a request that was answered, or aborted after its status was sent.
    pub fn request(&self, status: u16, duration: Duration) {
        self.requests.count(status);
        self.durations.observe(duration);
    }

    /// Counts a response that was not sent completely: `changed`, `reset`, `shrank`, `timeout`.
    pub fn failed(&self, failure: &'static str) {
        self.failures.count(failure, String::new());
    }

    /// Counts a wait for a file that was not in the page cache.
    pub fn cold_wait(&self, duration: Duration) {
        self.cold_waits.fetch_add(1, Relaxed);
        self.cold_nanoseconds.fetch_add(nanoseconds(duration), Relaxed);
    }

    /// Counts bytes that were sent by a mechanism or, if it is `None`, from memory.
    ///
    /// It is for bytes that are in no report; [`record`](Self::record) counts reports.
    pub fn moved(&self, mechanism: Option<Mechanism>, bytes: u64) {
        let counter = mechanism.map_or(&self.memory, |mechanism| &self.moved[mechanism as usize]);
        counter.fetch_add(bytes, Relaxed);
    }

    /// Counts a received body: its bytes, and the operations that the kernel declined.
    pub fn received(&self, report: &Report) {
        for (mechanism, tally) in report.mechanisms() {
            self.received[mechanism as usize].fetch_add(tally.bytes, Relaxed);
        }
        let mut recorded = Recorded::default();
        self.record_declines(report, &mut recorded);
    }

    /// Counts a transfer: its bytes, and the operations that the kernel declined.
    pub fn record(&self, report: &Report) {
        self.record_more(report, &mut Recorded::default());
    }

    /// Counts the progress of a transfer since it was last counted, so that a transfer of ten hours
    /// is visible while it runs. `recorded` holds the counted part; each transfer has its own.
    pub fn record_more(&self, report: &Report, recorded: &mut Recorded) {
        for mechanism in Mechanism::ALL {
            let (now, before) =
                (report.by(mechanism).bytes, &mut recorded.mechanisms[mechanism as usize]);
            if now > *before {
                self.moved(Some(mechanism), now - *before);
                *before = now;
            }
        }
        let memory = report.memory().bytes;
        if memory > recorded.memory {
            self.moved(None, memory - recorded.memory);
            recorded.memory = memory;
        }
        let declines: u64 = report.declined().iter().map(|decline| decline.times).sum();
        if declines > recorded.declines.iter().sum() {
            self.record_declines(report, recorded);
        }
    }

    /// Counts new declines. A report only ever adds to its list.
    fn record_declines(&self, report: &Report, recorded: &mut Recorded) {
        recorded.declines.resize(report.declined().len(), 0);
        for (decline, before) in report.declined().iter().zip(&mut recorded.declines) {
            for _ in *before..decline.times {
                self.declines.count(decline.what.name(), decline.reason.name().into_owned());
            }
            *before = decline.times;
        }
    }
}

impl fmt::Debug for WorkerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerMetrics").field("accepted", &self.accepted).finish_non_exhaustive()
    }
}

/// The part of a transfer's report that was already counted, for [`WorkerMetrics::record_more`].
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Bytes by mechanism.
    mechanisms: [u64; Mechanism::ALL.len()],
    /// Bytes from memory.
    memory: u64,
    /// The counts of the report's declines, in its order.
    declines: Vec<u64>,
}

/// A counter for each status from 100 to 599.
struct Codes([AtomicU64; 500]);

impl Codes {
    /// Returns the sum of all counters.
    fn total(&self) -> u64 {
        self.0.iter().map(|counter| counter.load(Relaxed)).sum()
    }

    /// Counts one response. Statuses outside this range are never sent.
    fn count(&self, status: u16) {
        if let Some(counter) = status.checked_sub(100).and_then(|at| self.0.get(usize::from(at))) {
            counter.fetch_add(1, Relaxed);
        }
    }
}

impl Default for Codes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// Labelled counters for rare events.
#[derive(Default)]
struct RareCounts(Mutex<BTreeMap<(&'static str, String), u64>>);

/// The maximum number of distinct label combinations; all others count as `other`.
const MAX_LABELS: usize = 64;

impl RareCounts {
    /// Counts one event.
    fn count(&self, first: &'static str, second: String) {
        let mut counts = lock(&self.0);
        let key = (first, second);
        if counts.len() < MAX_LABELS || counts.contains_key(&key) {
            *counts.entry(key).or_default() += 1;
        } else {
            *counts.entry(("other", "other".into())).or_default() += 1;
        }
    }

    /// Adds all counts to those of other workers.
    fn add_to(&self, sums: &mut BTreeMap<(&'static str, String), u64>) {
        let counts = lock(&self.0);
        for (key, count) in &*counts {
            *sums.entry(key.clone()).or_default() += count;
        }
    }
}
