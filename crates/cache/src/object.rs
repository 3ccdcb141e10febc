//! One object: its current version, and the fetch from the origin that is in progress.
//!
//! Locks are taken in this order: the files of an object, the quota, the objects in memory, the
//! state of an object, and that of a version. What is dropped under the state of an object must
//! not take an earlier lock, and versions are dropped after it: closing their file can take long.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use underpass_engine::wait::lock;

use crate::error::{CacheError, CacheErrorKind};
use crate::fill::{BufferedResponse, Relay};
use crate::key::CacheKey;
use crate::pool::JobOwner;
use crate::version::ObjectVersion;

/// One object.
#[derive(Debug)]
pub(crate) struct CachedObject {
    pub(crate) key: CacheKey,
    state: Mutex<ObjectState>,
    /// Held while its files are created, opened or removed, together with the state in memory. No
    /// other object's files are locked meanwhile.
    files: Mutex<()>,
}

/// The state of an object.
#[derive(Debug, Default)]
pub(crate) struct ObjectState {
    /// The version that is currently served.
    pub(crate) current: Option<Arc<ObjectVersion>>,
    /// The previous whole version, which is restored if the first fill of its successor fails.
    fallback: Option<Arc<ObjectVersion>>,
    /// The fetch in progress, which later requests wait for.
    pub(crate) pending: Option<Arc<PendingFetch>>,
    /// The origin's response without an object, such as an error.
    pub(crate) response: Option<Arc<BufferedResponse>>,
    /// The time until which each client's request is forwarded separately.
    pub(crate) private_until: Option<Instant>,
    /// The time until which requests are relayed, because the object could not be stored, and why.
    relayed_until: Option<(Instant, CacheErrorKind)>,
    /// The time until which the stale version is used, because the origin asked for a pause or
    /// failed to send a new one, and the kind of failure.
    pub(crate) pause: Option<(Instant, CacheErrorKind)>,
    /// Whether the disk was checked for a stored version.
    pub(crate) is_loaded: bool,
    /// How often the fetch in progress was disregarded, as by a purge: its result must not be
    /// stored.
    pub(crate) purges: u64,
}

impl ObjectState {
    /// Returns whether each client's request is forwarded separately.
    pub(crate) fn is_private(&self) -> bool {
        lasts(self.private_until)
    }

    /// Returns why requests are relayed, if they are.
    pub(crate) fn why_relayed(&self) -> Option<CacheErrorKind> {
        self.relayed_until.filter(|(until, _)| Instant::now() < *until).map(|(_, why)| why)
    }

    /// Relays requests for this time, or for longer if that is known already.
    pub(crate) fn relay_for(&mut self, time: Duration, why: CacheErrorKind) {
        let until = Instant::now() + time;
        if self.relayed_until.is_none_or(|(known, _)| known < until) {
            self.relayed_until = Some((until, why));
        }
    }
}

fn lasts(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() < until)
}

impl CachedObject {
    pub(crate) fn new(key: CacheKey) -> Self {
        Self { key, state: Mutex::default(), files: Mutex::default() }
    }

    /// Prevents other threads from creating, opening or removing its files.
    pub(crate) fn lock_files(&self) -> MutexGuard<'_, ()> {
        lock(&self.files)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ObjectState> {
        lock(&self.state)
    }

    /// Returns the version that is currently served.
    pub(crate) fn current(&self) -> Option<Arc<ObjectVersion>> {
        self.state().current.clone()
    }

    /// Replaces the current version, unless the object was purged since `purges` was read. Readers
    /// of the old version only get bytes that are present or being fetched. If `is_usable` when the
    /// origin fails, the old version is restored if the new one is dropped.
    pub(crate) fn replace(
        &self,
        version: &Arc<ObjectVersion>,
        why: CacheErrorKind,
        purges: u64,
        is_usable: impl Fn(&ObjectVersion) -> bool,
    ) -> Replacement {
        let (is_kept, old) = {
            let mut state = self.state();
            if state.purges != purges {
                return Replacement::Purged;
            }
            state.response = None;
            match state.current.replace(Arc::clone(version)) {
                Some(usable) if is_usable(&usable) => {
                    usable.detach();
                    (true, state.fallback.replace(usable))
                }
                before => (false, before),
            }
        };
        match old {
            _ if is_kept => Replacement::Replaced,
            Some(before) => {
                before.retire(why);
                Replacement::Replaced
            }
            None => Replacement::First,
        }
    }

    /// Returns whether a previous version is restored if this one is dropped.
    pub(crate) fn has_fallback(&self, version: &Arc<ObjectVersion>) -> bool {
        let state = self.state();
        state.is_current(version) && state.fallback.is_some()
    }

    /// Forgets the previous version, because the first fill of this one was not dropped.
    pub(crate) fn forget_fallback(&self, version: &Arc<ObjectVersion>) {
        let mut state = self.state();
        let forgotten = if state.is_current(version) { state.fallback.take() } else { None };
        drop(state);
        drop(forgotten);
    }

    /// Removes the current version; returns whether there was one. Its readers still get all of it.
    pub(crate) fn detach(&self) -> bool {
        let (before, _fallback) = {
            let mut state = self.state();
            (state.current.take(), state.fallback.take())
        };
        before.as_ref().map(|before| before.detach()).is_some()
    }

    /// Forgets everything known about it. Later requests start a new fetch.
    pub(crate) fn purge(&self) {
        let mut state = self.state();
        state.response = None;
        (state.private_until, state.relayed_until, state.pause) = (None, None, None);
        state.disregard_pending();
    }

    /// Removes a version, unless it was replaced already, and restores the previous one, if there
    /// is one.
    pub(crate) fn drop_version(
        &self,
        version: &Arc<ObjectVersion>,
        why: CacheErrorKind,
    ) -> DroppedVersion {
        let was_stored = version.retire(why);
        let mut state = self.state();
        if !state.is_current(version) {
            return DroppedVersion { was_stored, restored: None };
        }
        let restored = state.fallback.take();
        state.current.clone_from(&restored);
        DroppedVersion { was_stored, restored }
    }

    /// Removes a restored version if it is still the current one.
    pub(crate) fn drop_restored(&self, version: &Arc<ObjectVersion>) {
        let mut state = self.state();
        if !state.is_current(version) {
            return;
        }
        state.current = None;
        drop(state);
        version.retire(CacheErrorKind::NoRoom);
    }

    /// Ends a fetch.
    pub(crate) fn finish(&self, pending: &Arc<PendingFetch>, outcome: FetchOutcome) {
        {
            let mut state = self.state();
            if state.pending.as_ref().is_some_and(|known| Arc::ptr_eq(known, pending)) {
                state.pending = None;
            }
            if matches!(outcome, FetchOutcome::Sent { .. } | FetchOutcome::Valid(..)) {
                // The origin answers again.
                state.pause = None;
            }
        }
        pending.finish(outcome);
    }

    /// Returns whether nothing uses the object, so that it can be dropped from memory.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        state.pending.is_none()
            && state
                .current
                .as_ref()
                .is_none_or(|current| !current.is_busy() && Arc::strong_count(current) == 1)
    }
}

impl ObjectState {
    /// Disregards the fetch in progress: no more requests join it, and its result is used only by
    /// those already waiting.
    pub(crate) fn disregard_pending(&mut self) {
        self.purges += 1;
        self.pending = None;
    }

    fn is_current(&self, version: &Arc<ObjectVersion>) -> bool {
        self.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, version))
    }
}

/// A fetch in progress, with the tasks that wait for its outcome.
#[derive(Debug)]
pub(crate) struct PendingOutcome<T> {
    /// The latest expiry that was declared before it began.
    pub(crate) epoch: u64,
    /// Whether the origin was asked to validate a stale version.
    pub(crate) is_validation: AtomicBool,
    /// The client whose request started it.
    pub(crate) owner: JobOwner,
    state: Mutex<PendingState<T>>,
}

/// The fetch of an object.
pub(crate) type PendingFetch = PendingOutcome<FetchOutcome>;

#[derive(Debug)]
struct PendingState<T> {
    outcome: Option<T>,
    /// The wakers of the waiting tasks, by their numbers.
    wakers: HashMap<u64, Waker>,
    next_task: u64,
}

/// The relay for the client whose request started the fetch; it can be taken once.
pub(crate) type RelaySlot = Arc<Mutex<Option<Relay>>>;

/// The outcome of a fetch.
#[derive(Clone, Debug)]
pub(crate) enum FetchOutcome {
    /// An earlier process stored it; it is fresh, or is being validated.
    Loaded(Arc<ObjectVersion>, Option<&'static str>),
    /// The origin sent this version, with this status.
    Sent {
        version: Arc<ObjectVersion>,
        status: u16,
        /// Whether it was stored, so that waiting requests may get it, even if replaced since.
        is_stored: bool,
    },
    /// The origin sent this version, with this status. It cannot be stored for this reason, so only
    /// the client that started the fetch gets it.
    Relayed(Arc<ObjectVersion>, u16, RelaySlot, CacheErrorKind),
    /// The object cannot be stored, and the client that started the fetch has too many relays.
    /// Other clients start their own.
    NotRelayed,
    /// The origin confirmed the stored version with this status.
    Valid(Arc<ObjectVersion>, u16),
    /// The origin failed; the stored version is stale but may be used.
    Stale(Arc<ObjectVersion>, CacheError),
    /// The origin sent a response without an object.
    Response(Arc<BufferedResponse>),
    /// There is no response.
    Failed(CacheError, Option<Duration>),
}

impl FetchOutcome {
    /// The origin has just sent this version, which is in place already if it is stored.
    pub(crate) fn sent(version: &Arc<ObjectVersion>, status: u16) -> Self {
        Self::Sent { version: Arc::clone(version), status, is_stored: version.is_stored() }
    }
}

impl<T: Clone> PendingOutcome<T> {
    pub(crate) fn new(epoch: u64, client: Option<IpAddr>) -> Self {
        let state = PendingState { outcome: None, wakers: HashMap::new(), next_task: 0 };
        let (is_validation, owner) = (AtomicBool::new(false), JobOwner::new(client));
        Self { epoch, is_validation, owner, state: Mutex::new(state) }
    }

    /// Ends the fetch; the first outcome counts.
    pub(crate) fn finish(&self, outcome: T) {
        let wakers = {
            let mut state = lock(&self.state);
            state.outcome.get_or_insert(outcome);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }

    /// Returns whether there is an outcome.
    pub(crate) fn is_finished(&self) -> bool {
        lock(&self.state).outcome.is_some()
    }

    /// Returns the outcome once there is one; `None` if the fetch has waited for a thread for this
    /// time meanwhile. `sleep` returns a future that ends after a time.
    pub(crate) async fn outcome_within<S: Future<Output = ()>>(
        &self,
        limit: Duration,
        sleep: impl Fn(Duration) -> S,
    ) -> Option<T> {
        let (mut outcome, mut timer) = (pin!(self.outcome()), pin!(sleep(limit)));
        poll_fn(|context| {
            if let Poll::Ready(outcome) = outcome.as_mut().poll(context) {
                return Poll::Ready(Some(outcome));
            }
            while timer.as_mut().poll(context).is_ready() {
                // The wait may have begun after the timer: a job can queue twice.
                let rest = limit.saturating_sub(self.owner.waited());
                if rest.is_zero() {
                    return Poll::Ready(None);
                }
                timer.set(sleep(rest));
            }
            Poll::Pending
        })
        .await
    }

    /// Returns the outcome once there is one.
    fn outcome(&self) -> impl Future<Output = T> + '_ {
        let mut state = lock(&self.state);
        state.next_task += 1;
        OutcomeFuture { pending: self, task: state.next_task }
    }
}

/// Waits for the outcome of a fetch.
struct OutcomeFuture<'c, T> {
    pending: &'c PendingOutcome<T>,
    /// Its number among the waiting tasks.
    task: u64,
}

impl<T: Clone> Future for OutcomeFuture<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = lock(&self.pending.state);
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        let before = state.wakers.insert(self.task, context.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl<T> Drop for OutcomeFuture<'_, T> {
    fn drop(&mut self) {
        let waker = lock(&self.pending.state).wakers.remove(&self.task);
        drop(waker);
    }
}

/// Ends a fetch as failed if dropped without an outcome.
#[derive(Debug)]
pub(crate) struct FetchGuard {
    pub(crate) object: Arc<CachedObject>,
    pub(crate) pending: Arc<PendingFetch>,
}

impl FetchGuard {
    pub(crate) fn finish(&self, outcome: FetchOutcome) {
        self.object.finish(&self.pending, outcome);
    }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        self.finish(FetchOutcome::Failed(CacheErrorKind::Busy.into(), None));
    }
}

/// The outcome of removing a version of an object.
#[derive(Debug)]
pub(crate) struct DroppedVersion {
    /// Whether it was stored.
    pub(crate) was_stored: bool,
    /// The previous version, which is served again. Its file has no name any more.
    pub(crate) restored: Option<Arc<ObjectVersion>>,
}

/// The outcome of replacing the current version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// The object was purged meanwhile, so nothing was replaced.
    Purged,
    /// There was no version before.
    First,
    /// An earlier version was replaced.
    Replaced,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_future_leaves_no_waker() {
        let pending = PendingOutcome::new(0, None);
        let mut context = Context::from_waker(Waker::noop());
        let mut stays = pin!(pending.outcome());
        for _ in 0..3 {
            assert!(stays.as_mut().poll(&mut context).is_pending());
            assert!(pin!(pending.outcome()).poll(&mut context).is_pending());
        }
        assert_eq!(lock(&pending.state).wakers.len(), 1);
        pending.finish(5);
        assert_eq!(stays.poll(&mut context), Poll::Ready(5));
    }
}
