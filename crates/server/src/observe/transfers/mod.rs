//! The transfers that are under way, for who wants to look on.
//!
//! A transfer reports its progress by a few atomic numbers and never waits for those who look.

mod json;
mod page;
mod progress;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use underpass_engine::Mechanism;

pub use page::CONTENT_SECURITY_POLICY;
use progress::Progress;

/// A request target without the token of an upload in its query.
#[must_use]
pub fn without_token(target: &[u8]) -> Vec<u8> {
    let Some(query) = target.iter().position(|&byte| byte == b'?') else { return target.into() };
    let (path, query) = target.split_at(query + 1);
    let mut shown = path.to_vec();
    for (index, pair) in query.split(|&byte| byte == b'&').enumerate() {
        if index > 0 {
            shown.push(b'&');
        }
        let is_token = pair.starts_with(b"upload=");
        shown.extend_from_slice(if is_token { b"upload" } else { pair });
    }
    shown
}

/// What is known about a transfer when it begins.
#[derive(Clone, Debug)]
pub struct TransferFacts {
    /// The address of the client.
    pub peer: String,
    /// The user, whose password was right.
    pub user: Option<Arc<str>>,
    /// The method.
    pub verb: String,
    /// The request target as the client sent it, but for the tokens of uploads: whoever knows
    /// one could act as the client.
    pub target: Vec<u8>,
    /// The status that was sent.
    pub status: u16,
    /// Bytes of the body that were promised.
    pub expected: u64,
    /// When the request was read.
    pub started: Instant,
}

/// The transfers that are under way.
///
/// Cheap to clone: all clones are the same registry.
#[derive(Clone, Debug, Default)]
pub struct Transfers {
    /// By number, which is in the order in which they were registered.
    registry: Arc<Mutex<Registry>>,
}

/// What the lock is about.
#[derive(Debug, Default)]
struct Registry {
    /// The number of the next transfer.
    next: u64,
    /// Those under way.
    live: BTreeMap<u64, Arc<Live>>,
}

/// One transfer that is under way.
#[derive(Debug)]
struct Live {
    /// What does not change.
    facts: TransferFacts,
    /// What does.
    progress: Progress,
}

impl Transfers {
    /// Adds a transfer, until the handle is dropped. Takes a lock for a moment, so it is meant for
    /// transfers that are not over at once.
    #[must_use]
    pub fn register(&self, facts: TransferFacts) -> Handle {
        let progress = Progress::default();
        let live = Arc::new(Live { facts, progress });
        let mut registry = self.lock();
        let id = registry.next;
        registry.next += 1;
        registry.live.insert(id, Arc::clone(&live));
        Handle { transfers: self.clone(), id, live }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().live.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those that whoever asks may see as a JSON array, the oldest first.
    #[must_use]
    pub fn json(&self, may_see: impl Fn(&TransferFacts) -> bool) -> String {
        json::render(&self.look(Instant::now(), may_see))
    }

    /// The newest of these as a page that renews itself, in less than 20 KiB.
    ///
    /// It has a link to `?json`, where the shell is to answer with [`json`](Self::json).
    #[must_use]
    pub fn page(&self, may_see: impl Fn(&TransferFacts) -> bool) -> String {
        page::render(&self.look(Instant::now(), may_see))
    }

    /// Those that may be seen as they are now, the oldest first.
    fn look(&self, now: Instant, may_see: impl Fn(&TransferFacts) -> bool) -> Vec<View> {
        let live: Vec<_> =
            self.lock().live.iter().map(|(id, live)| (*id, Arc::clone(live))).collect();
        let seen = live.into_iter().filter(|(_, live)| may_see(&live.facts));
        seen.map(|(id, live)| View::new(id, live, now)).collect()
    }

    /// Locks even if another thread has panicked: the map is never half-written.
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registered transfer, held by whoever moves it. It leaves the registry when this is dropped.
#[derive(Debug)]
pub struct Handle {
    /// The registry.
    transfers: Transfers,
    /// The number in it.
    id: u64,
    /// The entry in it.
    live: Arc<Live>,
}

impl Handle {
    /// Tells how many bytes of the body have been sent so far in all, and what moved the last of
    /// them; no mechanism means memory. Takes no lock.
    pub fn progress(&self, bytes: u64, mechanism: Option<Mechanism>) {
        let elapsed = self.live.facts.started.elapsed();
        self.live.progress.set(bytes, mechanism, elapsed);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.transfers.lock().live.remove(&self.id);
    }
}

/// A transfer at the moment at which somebody looks.
#[derive(Debug)]
struct View {
    /// The number of the transfer.
    id: u64,
    /// What does not change.
    live: Arc<Live>,
    /// Bytes sent.
    bytes: u64,
    /// Time since it was started.
    elapsed: Duration,
    /// Bytes a second, over the last seconds.
    rate: u64,
    /// What moved the last bytes.
    mechanism: &'static str,
}

impl View {
    /// Looks at a transfer.
    fn new(id: u64, live: Arc<Live>, now: Instant) -> Self {
        let elapsed = now.saturating_duration_since(live.facts.started);
        let (bytes, mechanism) = (live.progress.bytes(), live.progress.mechanism());
        let rate = live.progress.rate(elapsed);
        Self { id, live, bytes, elapsed, rate, mechanism }
    }

    /// What does not change.
    fn facts(&self) -> &TransferFacts {
        &self.live.facts
    }

    /// Seconds until it will be over if it goes on like this; none if it does not go on.
    fn remaining(&self) -> Option<u64> {
        let left = self.facts().expected.saturating_sub(self.bytes);
        (self.rate > 0).then(|| left.div_ceil(self.rate))
    }
}
