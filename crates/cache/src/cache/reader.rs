//! Readers of objects, which read bytes from the disk and wait for missing ones.

use std::future::poll_fn;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use underpass_engine::wait::lock;

use crate::error::{CacheError, CacheErrorKind};
use crate::fill::{self, Relay};
use crate::object::CachedObject;
use crate::pool::JobOwner;
use crate::shared::{CacheState, ClientLimits, Permit};
use crate::store::{StoredUnit, is_divided};
use crate::version::{ObjectVersion, ReadStep};

/// A reader of an object.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<CacheState>,
    object: Arc<CachedObject>,
    version: Arc<ObjectVersion>,
    /// Its number among the readers of the version.
    number: u64,
    /// The start of the extent that was read last.
    extent: AtomicU64,
    /// Whether it has received bytes, so that an error would truncate its response.
    has_begun: AtomicBool,
    cdn_loop: String,
    client: Option<IpAddr>,
    /// Its number among the tasks that wait for a permit, if it ever waited.
    task: OnceLock<u64>,
    /// The relay of bytes that cannot be stored, if there is one.
    relay: Mutex<Option<Relay>>,
}

impl Reader {
    pub(super) fn new(
        shared: Arc<CacheState>,
        object: Arc<CachedObject>,
        version: Arc<ObjectVersion>,
        cdn_loop: String,
        client: Option<IpAddr>,
        relay: Option<Relay>,
    ) -> Self {
        let number = version.enter(client);
        let extent = AtomicU64::new(u64::MAX);
        Self {
            shared,
            object,
            version,
            number,
            extent,
            has_begun: AtomicBool::new(false),
            cdn_loop,
            client,
            task: OnceLock::new(),
            relay: Mutex::new(relay),
        }
    }

    /// Limits the reader to these bytes: other extents of a large object may be evicted.
    pub fn narrow(&self, range: &Range<u64>) {
        if is_divided(self.version.len()) {
            self.version.pin(self.number, range);
            self.touch(range.start);
        }
    }

    /// Counts the use of the extent that contains this byte, once each time it is entered.
    fn touch(&self, at: u64) {
        let len = self.version.len();
        if is_divided(len) {
            let unit = StoredUnit::of(self.object.key.digest(), len, at);
            let start = unit.range(len).start;
            if self.extent.swap(start, Ordering::Relaxed) != start {
                self.shared.quota.touch(&unit);
            }
        }
    }

    /// Returns the file. Each byte that has arrived is at its offset there and does not change.
    #[must_use]
    pub fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.version.file)
    }

    /// Returns the pipe from which the bytes reported by [`wait_for`](Self::wait_for) must be read
    /// if they could not be stored in the file.
    #[must_use]
    pub fn pipe(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.relay).as_ref().map(Relay::pipe)
    }

    /// Returns the reason why the bytes are in the [pipe](Self::pipe), if they are.
    #[must_use]
    pub fn why_relayed(&self) -> Option<CacheErrorKind> {
        lock(&self.relay).as_ref().map(|relay| relay.why)
    }

    /// Returns how many bytes of a range are present in the file.
    #[must_use]
    pub fn present(&self, range: &Range<u64>) -> u64 {
        self.version.count_in(range)
    }

    /// Drops the object after a read error of its file; the next request fetches it.
    pub fn mark_damaged(&self) {
        self.shared.mark_damaged(&self.object, &self.version);
    }

    /// Returns whether bytes that have arrived may be lost, because the disk could not sync them:
    /// the response must end in a way that the client notices.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.version.is_lost()
    }

    /// Returns whether the origin has stalled in the middle of a relay.
    #[must_use]
    pub fn has_stalled(&self) -> bool {
        let limit = self.shared.options.timeout;
        lock(&self.relay).as_ref().is_some_and(|relay| relay.has_stalled(limit))
    }

    /// Returns whether the client, which has waited for the byte `at` for this time and has received
    /// nothing yet, need not wait on: for as long as the origin may take to answer, no thread was
    /// free to fetch the byte, or too many other parts of the object are being fetched.
    #[must_use]
    pub fn is_held_up(&self, at: u64, waited: Duration) -> bool {
        let limit = self.shared.options.timeout;
        waited >= limit
            && !self.has_begun.load(Ordering::Relaxed)
            && lock(&self.relay).is_none()
            && self.version.queued_for(at).is_none_or(|queued| queued >= limit)
    }

    /// Waits until the byte `at` has arrived, and returns the end of the available bytes, at most
    /// `end`, or `at` itself at the end of the object. Starts a fill if no running one will bring
    /// the byte. Bytes in a pipe must be read before the next call for later ones.
    ///
    /// # Errors
    ///
    /// The reason why the bytes will not arrive. Bytes of another version never follow this one's.
    ///
    /// # On failure
    ///
    /// Bytes reported earlier stay valid in the file or the pipe. The response must end there in a
    /// way that the client notices, such as a reset.
    pub async fn wait_for(&self, at: u64, end: u64) -> Result<u64, CacheError> {
        let arrived = poll_fn(|context| self.poll(at, end, context)).await?;
        if arrived > at {
            self.has_begun.store(true, Ordering::Relaxed);
        }
        Ok(arrived)
    }

    fn poll(&self, at: u64, end: u64, context: &Context<'_>) -> Poll<Result<u64, CacheError>> {
        let mut relay = lock(&self.relay);
        if let Some(polled) = relay.as_ref().and_then(|it| it.poll(at..end, context.waker())) {
            return polled;
        }
        *relay = None;
        loop {
            let permit = || self.permit(&self.shared.clients, context.waker());
            match self.version.step(self.number, at, end, context.waker(), permit) {
                ReadStep::Available(end) => {
                    self.touch(at);
                    return Poll::Ready(Ok(end));
                }
                ReadStep::Fail(error)
                    if error.kind().is_of_disk()
                        && self.version.validator().is_some()
                        && self.version.broken().is_none() =>
                {
                    let started = ready!(self.start_relay(error.kind(), context.waker()))?;
                    let started = relay.insert(started);
                    let hole = at..self.version.hole_end(at, end);
                    return started.poll(hole, context.waker()).unwrap_or(Poll::Ready(Ok(at)));
                }
                ReadStep::Fail(error) => return Poll::Ready(Err(error)),
                ReadStep::Wait { has_joined } => {
                    if has_joined {
                        self.shared.admit();
                    }
                    return Poll::Pending;
                }
                // The next step waits for this fill.
                ReadStep::StartFill(id, range, permit, owner) => {
                    if !self.start_fill(id, range, permit, &owner) {
                        // Other readers of these bytes start their own fill.
                        self.version.end_fill(id, None);
                        return Poll::Ready(Err(CacheErrorKind::Busy.into()));
                    }
                }
            }
        }
    }

    /// Starts a fill that was registered as `id`; returns `false` if too many wait.
    fn start_fill(&self, id: u64, range: Range<u64>, permit: Permit, owner: &JobOwner) -> bool {
        let (shared, object) = (Arc::clone(&self.shared), Arc::clone(&self.object));
        let (version, cdn_loop) = (Arc::clone(&self.version), self.cdn_loop.clone());
        self.shared.fills.run_for(owner, move || {
            fill::fill_hole(&shared, &object, &version, id, range, &cdn_loop);
            drop(permit);
        })
    }

    /// Starts a relay of bytes that cannot be stored.
    fn start_relay(&self, why: CacheErrorKind, waker: &Waker) -> Poll<Result<Relay, CacheError>> {
        let permit = ready!(self.permit(&self.shared.relaying, waker))?;
        let (relay, writer) =
            Relay::new(why).map_err(|error| CacheError::new(CacheErrorKind::Busy, error))?;
        let (shared, object) = (Arc::clone(&self.shared), Arc::clone(&self.object));
        let (version, cdn_loop) = (Arc::clone(&self.version), self.cdn_loop.clone());
        let job = move || {
            fill::relay(&shared, &object, &version, writer, None, &cdn_loop);
            drop(permit);
        };
        let is_begun = self.shared.relays.run(job);
        Poll::Ready(if is_begun { Ok(relay) } else { Err(CacheErrorKind::Busy.into()) })
    }

    /// Counts one more job of the client. If the client, or all together, have too many, a reader
    /// whose response has begun waits for a job to end.
    fn permit(&self, limits: &ClientLimits, waker: &Waker) -> Poll<Result<Permit, CacheError>> {
        let has_begun = self.has_begun.load(Ordering::Relaxed);
        let task = has_begun.then(|| (*self.task.get_or_init(ClientLimits::new_task), waker));
        match limits.acquire_or_wait(self.client, task) {
            Some(permit) => Poll::Ready(Ok(permit)),
            None if has_begun => Poll::Pending,
            None => Poll::Ready(Err(CacheErrorKind::Busy.into())),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.version.leave(self.number);
        for limits in [&self.shared.clients, &self.shared.relaying] {
            self.task.get().into_iter().for_each(|task| limits.stop_waiting(*task));
        }
    }
}
