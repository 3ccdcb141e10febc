//! Counters of the whole server, in the text format of Prometheus.
//!
//! Each worker counts in a block of its own, so that counting costs no other processor's cache
//! line; the blocks are summed when somebody asks.

mod histogram;
mod render;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use underpass_engine::{Mechanism, Report};

use histogram::{Histogram, nanoseconds};

/// The media type of [`Metrics::render`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Counters of the whole server.
#[derive(Debug)]
pub struct Metrics {
    /// A block for each worker.
    workers: Box<[WorkerMetrics]>,
    /// Digests that were made.
    digests: AtomicU64,
    /// Bytes that were read for that.
    digest_bytes: AtomicU64,
    /// Folders that were walked for an archive.
    folder_walks: AtomicU64,
    /// Listings that were made, each for all who waited for it.
    listings: AtomicU64,
}

impl Metrics {
    /// Zeros for this many workers, at least one.
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

    /// The block of one worker. Numbers beyond the last worker start again at the first: two
    /// threads that share a block count correctly, only slower.
    #[must_use]
    pub fn worker(&self, index: usize) -> &WorkerMetrics {
        &self.workers[index % self.workers.len()]
    }

    /// So many bytes of a file were read into user space for a digest, which was made, or given
    /// up.
    pub fn digest(&self, read_bytes: u64, is_made: bool) {
        self.digests.fetch_add(is_made.into(), Relaxed);
        self.digest_bytes.fetch_add(read_bytes, Relaxed);
    }

    /// A folder was walked to lay out its archive.
    pub fn folder_walk(&self) {
        self.folder_walks.fetch_add(1, Relaxed);
    }

    /// A listing was made.
    pub fn listing(&self) {
        self.listings.fetch_add(1, Relaxed);
    }

    /// Requests answered, and bytes sent for them, heads included.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        let requests = self.workers.iter().map(|worker| worker.requests.total()).sum();
        let bytes = self.workers.iter().map(|worker| {
            let moved = worker.moved.iter().map(|bytes| bytes.load(Relaxed)).sum::<u64>();
            moved + worker.memory.load(Relaxed)
        });
        (requests, bytes.sum())
    }

    /// Everything in the text format of Prometheus, version 0.0.4, of type [`MEDIA_TYPE`].
    ///
    /// How many transfers are open is for [`Transfers::len`] to say.
    ///
    /// [`Transfers::len`]: crate::observe::transfers::Transfers::len
    #[must_use]
    pub fn render(&self, open_transfers: usize) -> String {
        render::render(self, open_transfers)
    }
}

/// What one worker counts. Counting takes no lock but for what is rare.
// 128 bytes: two cache lines, which processors of today fetch together.
#[derive(Default)]
#[repr(align(128))]
pub struct WorkerMetrics {
    /// Connections that were accepted.
    accepted: AtomicU64,
    /// Those of them that have ended.
    closed: AtomicU64,
    /// Connections that were turned away.
    refused: AtomicU64,
    /// Closed while they were idle, to make room for others.
    evicted: AtomicU64,
    /// Requests answered, by status.
    requests: Codes,
    /// Bytes by mechanism.
    moved: [AtomicU64; Mechanism::ALL.len()],
    /// Bytes from memory: heads, and bodies that are no files.
    memory: AtomicU64,
    /// Bytes of request bodies by mechanism.
    received: [AtomicU64; Mechanism::ALL.len()],
    /// How often a file had to be waited for.
    cold_waits: AtomicU64,
    /// For how long, in nanoseconds.
    cold_nanoseconds: AtomicU64,
    /// How long requests took.
    durations: Histogram,
    /// What the kernel declined, by mechanism and errno.
    declines: RareCounts,
    /// Responses that were not sent as promised, by failure.
    failures: RareCounts,
    /// Connections with TLS, by who encrypts and why it is not the kernel.
    secured: RareCounts,
    /// Handshakes that failed, by reason.
    handshake_failures: RareCounts,
    /// Handshakes that went on with an earlier session.
    resumed: AtomicU64,
}

impl WorkerMetrics {
    /// A connection was accepted.
    pub fn connection_opened(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    /// A connection that was accepted has ended.
    pub fn connection_closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    /// A connection was turned away, because there are too many or none could be accepted.
    pub fn connection_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// An idle connection was closed to make room for another one.
    pub fn connection_evicted(&self) {
        self.evicted.fetch_add(1, Relaxed);
    }

    /// Hands were shaken. `why` the kernel does not encrypt, if it does not.
    pub fn secured(&self, why: Option<&'static str>, is_resumed: bool) {
        let mode = if why.is_some() { "user_space" } else { "kernel" };
        self.secured.count(mode, why.unwrap_or_default().to_owned());
        self.resumed.fetch_add(is_resumed.into(), Relaxed);
    }

    /// A handshake came to nothing: `plain_http`, `closed`, `timeout`, `io`, `tls`.
    pub fn handshake_failed(&self, reason: &'static str) {
        self.handshake_failures.count(reason, String::new());
    }

    /// A request was answered, or given up after its status was sent.
    pub fn request(&self, status: u16, duration: Duration) {
        self.requests.count(status);
        self.durations.observe(duration);
    }

    /// A response was not sent as promised: `changed`, `reset`, `shrank`, `timeout`.
    pub fn failed(&self, failure: &'static str) {
        self.failures.count(failure, String::new());
    }

    /// A file had to be waited for, because it was not in the page cache.
    pub fn cold_wait(&self, duration: Duration) {
        self.cold_waits.fetch_add(1, Relaxed);
        self.cold_nanoseconds.fetch_add(nanoseconds(duration), Relaxed);
    }

    /// Bytes were sent, by a mechanism or, if it is none, from memory.
    ///
    /// For what no report tells; what a report tells is for [`record`](Self::record).
    pub fn moved(&self, mechanism: Option<Mechanism>, bytes: u64) {
        let counter = mechanism.map_or(&self.memory, |mechanism| &self.moved[mechanism as usize]);
        counter.fetch_add(bytes, Relaxed);
    }

    /// Counts what was received: its bytes, and what the kernel declined.
    pub fn received(&self, report: &Report) {
        for (mechanism, tally) in report.mechanisms() {
            self.received[mechanism as usize].fetch_add(tally.bytes, Relaxed);
        }
        let mut recorded = Recorded::default();
        self.record_declines(report, &mut recorded);
    }

    /// Counts what a transfer did: its bytes, and what the kernel declined.
    pub fn record(&self, report: &Report) {
        self.record_more(report, &mut Recorded::default());
    }

    /// Counts what a transfer did since it was counted last, so that a transfer of ten hours shows
    /// while it runs. The second argument remembers what was counted; each transfer has its own.
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

    /// Counts declines that were not counted before. A report only ever adds to its list.
    fn record_declines(&self, report: &Report, recorded: &mut Recorded) {
        recorded.declines.resize(report.declined().len(), 0);
        for (decline, before) in report.declined().iter().zip(&mut recorded.declines) {
            for _ in *before..decline.times {
                self.declines.count(decline.what.name(), decline.refusal.name().into_owned());
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

/// How much of a transfer's report has been counted, for [`WorkerMetrics::record_more`].
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Bytes by mechanism.
    mechanisms: [u64; Mechanism::ALL.len()],
    /// Bytes from memory.
    memory: u64,
    /// How often each thing of the report's list was declined.
    declines: Vec<u64>,
}

/// A counter for each status from 100 to 599.
struct Codes([AtomicU64; 500]);

impl Codes {
    /// All of them together.
    fn total(&self) -> u64 {
        self.0.iter().map(|counter| counter.load(Relaxed)).sum()
    }

    /// Counts one. No other status is ever sent.
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

/// Counters with labels, for what happens rarely.
#[derive(Default)]
struct RareCounts(Mutex<BTreeMap<(&'static str, String), u64>>);

/// The most combinations of labels that are told apart; all further ones count as `other`.
const MAX_LABELS: usize = 64;

impl RareCounts {
    /// Counts one.
    fn count(&self, first: &'static str, second: String) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (first, second);
        if counts.len() < MAX_LABELS || counts.contains_key(&key) {
            *counts.entry(key).or_default() += 1;
        } else {
            *counts.entry(("other", "other".into())).or_default() += 1;
        }
    }

    /// Adds all counts to those of other workers.
    fn add_to(&self, sums: &mut BTreeMap<(&'static str, String), u64>) {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, count) in &*counts {
            *sums.entry(key.clone()).or_default() += count;
        }
    }
}
