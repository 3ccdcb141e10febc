//! The transfers in progress, for the operator.
//!
//! A transfer reports its progress by a few atomic numbers and never waits for readers.

mod cached;
mod json;
mod page;
mod progress;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::metrics::SiteCounts;
use underpass_engine::Mechanism;

pub use cached::{CacheRow, cache_json, cache_page};
pub use page::CONTENT_SECURITY_POLICY;
use progress::TransferState;
use underpass_engine::wait::lock;

/// What is known about a transfer when it begins.
#[derive(Clone, Debug)]
pub struct TransferFacts {
    /// The address of the client.
    pub peer: String,
    /// The site, if there are several.
    pub site: Option<Arc<SiteCounts>>,
    /// The authenticated user.
    pub user: Option<Arc<str>>,
    /// The method.
    pub verb: String,
    /// The request target as the client sent it, but without upload tokens: a token would let
    /// another client impersonate this one.
    pub target: Vec<u8>,
    /// The status that was sent.
    pub status: u16,
    /// The length of the body in bytes.
    pub expected: u64,
    /// When the request was read.
    pub started: Instant,
}

/// The registry of transfers in progress.
///
/// It is cheap to clone: all clones share one registry.
#[derive(Clone, Debug, Default)]
pub struct Transfers {
    /// The transfers by number, in the order of registration.
    registry: Arc<Mutex<Registry>>,
}

/// The state behind the lock.
#[derive(Debug, Default)]
struct Registry {
    /// The number of the next transfer.
    next: u64,
    /// The transfers in progress.
    live: BTreeMap<u64, Arc<LiveTransfer>>,
}

/// One transfer in progress.
#[derive(Debug)]
struct LiveTransfer {
    /// The constant facts.
    facts: TransferFacts,
    /// The changing progress.
    progress: TransferState,
}

impl Transfers {
    /// Adds a transfer until the handle is dropped. It takes a lock briefly, so it is meant for
    /// transfers that last.
    #[must_use]
    pub fn register(&self, facts: TransferFacts) -> Handle {
        let progress = TransferState::default();
        let live = Arc::new(LiveTransfer { facts, progress });
        let mut registry = lock(&self.registry);
        let id = registry.next;
        registry.next += 1;
        registry.live.insert(id, Arc::clone(&live));
        Handle { transfers: self.clone(), id, live }
    }

    /// Returns the number of transfers.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.registry).live.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the transfers that pass `may_see` as a JSON array, the oldest first.
    #[must_use]
    pub fn json(&self, may_see: impl Fn(&TransferFacts) -> bool) -> String {
        json::render(&self.views(Instant::now(), may_see))
    }

    /// Returns the newest of these transfers as a page that reloads itself, in less than 20 KiB.
    ///
    /// It has a link to `?json`, to which the server must answer with [`json`](Self::json).
    #[must_use]
    pub fn page(&self, may_see: impl Fn(&TransferFacts) -> bool) -> String {
        page::render(&self.views(Instant::now(), may_see))
    }

    /// Returns the current state of the transfers that pass `may_see`, the oldest first.
    fn views(&self, now: Instant, may_see: impl Fn(&TransferFacts) -> bool) -> Vec<View> {
        let live: Vec<_> =
            lock(&self.registry).live.iter().map(|(id, live)| (*id, Arc::clone(live))).collect();
        let seen = live.into_iter().filter(|(_, live)| may_see(&live.facts));
        seen.map(|(id, live)| View::new(id, live, now)).collect()
    }
}

/// A registered transfer, removed from the registry when this is dropped.
#[derive(Debug)]
pub struct Handle {
    /// The registry.
    transfers: Transfers,
    /// The transfer's number in it.
    id: u64,
    /// The transfer's entry in it.
    live: Arc<LiveTransfer>,
}

impl Handle {
    /// Reports the total bytes of the body so far, and the mechanism that moved the last of them;
    /// `None` means memory. It takes no lock.
    pub fn progress(&self, bytes: u64, mechanism: Option<Mechanism>) {
        let elapsed = self.live.facts.started.elapsed();
        self.live.progress.set(bytes, mechanism, elapsed);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        lock(&self.transfers.registry).live.remove(&self.id);
    }
}

/// A snapshot of a transfer.
#[derive(Debug)]
struct View {
    /// The number of the transfer.
    id: u64,
    /// The transfer.
    live: Arc<LiveTransfer>,
    /// The bytes sent.
    bytes: u64,
    /// The time since the start.
    elapsed: Duration,
    /// The rate in bytes per second over the last seconds.
    rate: u64,
    /// The mechanism that moved the last bytes.
    mechanism: &'static str,
}

impl View {
    /// Takes the snapshot of a transfer.
    fn new(id: u64, live: Arc<LiveTransfer>, now: Instant) -> Self {
        let elapsed = now.saturating_duration_since(live.facts.started);
        let (bytes, mechanism) = (live.progress.bytes(), live.progress.mechanism());
        let rate = live.progress.rate(elapsed);
        Self { id, live, bytes, elapsed, rate, mechanism }
    }

    /// Returns the facts about the transfer.
    fn facts(&self) -> &TransferFacts {
        &self.live.facts
    }

    /// Returns the seconds to the end at the current rate; `None` if the transfer is stalled.
    fn remaining(&self) -> Option<u64> {
        let left = self.facts().expected.saturating_sub(self.bytes);
        (self.rate > 0).then(|| left.div_ceil(self.rate))
    }
}
