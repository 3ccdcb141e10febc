//! Finds objects: decides whether an object's state can answer a request, or waits for a fetch.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use underpass_protocol::caching::{CacheStatus, Forward, Use};

use super::{Cache, Lookup};
use crate::error::{CacheError, CacheErrorKind};
use crate::fill::{self, BufferedResponse, ObjectRequest};
use crate::key::CacheKey;
use crate::object::{CachedObject, FetchGuard, FetchOutcome, ObjectState, PendingFetch};
use crate::shared::{Counters, Permit};
use crate::version::ObjectVersion;

impl Cache {
    /// Finds an object in the cache or at the origin. Concurrent requests for one object share one
    /// fetch. `sleep` returns a future that ends after a time: a request does not wait for a thread
    /// for longer than the time limit of the origin.
    pub async fn find<S: Future<Output = ()>>(
        &self,
        key: &CacheKey,
        request: &ObjectRequest,
        sleep: impl Fn(Duration) -> S,
    ) -> Lookup {
        // If the client disconnects, this is dropped, too.
        let mut counted = self.shared.popularity.count_for_now(key);
        let found = self.find_uncounted(key, request, sleep).await;
        // A failure does not tell whether the object exists and could be kept.
        counted.stays = match &found {
            Lookup::Entry(entry) => entry.is_stored() || entry.relay_slot.is_some(),
            Lookup::Response { .. } => false,
            Lookup::Failed { .. } => true,
        };
        found
    }

    /// Does the same for a request that does not make the object [popular](Self::popular).
    pub async fn find_uncounted<S: Future<Output = ()>>(
        &self,
        key: &CacheKey,
        request: &ObjectRequest,
        sleep: impl Fn(Duration) -> S,
    ) -> Lookup {
        let (object, limit) = (self.shared.object(key), self.shared.options.timeout);
        let mut is_collapsed = false;
        for _ in 0..MAX_ATTEMPTS {
            let (pending, is_own) = match self.look_up(&object, request, is_collapsed) {
                LookupStep::Done(found) => return *found,
                LookupStep::Wait { pending, is_own } => (pending, is_own),
                LookupStep::Busy => break,
            };
            if !is_own {
                is_collapsed = true;
                Counters::add(&self.shared.counters.collapsed, 1);
            }
            let Some(outcome) = pending.outcome_within(limit, &sleep).await else { break };
            let is_stale = pending.is_validation.load(Ordering::Relaxed);
            let wait = FetchWait { is_own, is_collapsed, is_stale };
            if let Some(found) = self.resolve(&object, outcome, wait, request) {
                return found;
            }
        }
        self.when_busy(&object, request)
    }

    /// Answers a request for which the origin cannot be asked: by the stale version, if that may be
    /// used on errors.
    fn when_busy(&self, object: &Arc<CachedObject>, request: &ObjectRequest) -> Lookup {
        let why = CacheErrorKind::Busy;
        let current = object.state().current.clone().filter(|current| current.is_servable());
        match current.filter(|current| self.shared.is_usable_on_error(&object.key, current)) {
            Some(current) => self.entry_now(object, current, Some(why.label()), request),
            None => {
                let forward = Some(Forward::UriMiss);
                let cache = CacheStatus { forward, ..CacheStatus::default() };
                Lookup::Failed { error: why.into(), retry_after: None, cache }
            }
        }
    }

    /// Uses the current state of an object, and starts a fetch if that is insufficient. A request
    /// that has joined another fetch in vain `is_collapsed`: it gets a fetch of its own.
    fn look_up(
        &self,
        object: &Arc<CachedObject>,
        request: &ObjectRequest,
        is_collapsed: bool,
    ) -> LookupStep {
        let mut state = object.state();
        let expiry = &self.shared.expiry;
        let epoch = expiry.newest();
        let is_expired =
            |fetch: &Arc<PendingFetch>| expiry.covers(&object.key.escaped(), fetch.epoch);
        if state.pending.as_ref().is_some_and(is_expired) {
            state.disregard_pending();
        }
        match self.plan(object, &state, request, is_collapsed) {
            LookupPlan::Response(response) => {
                let cache = CacheStatus { detail: Some("negative"), ..CacheStatus::default() };
                LookupStep::Done(Box::new(Lookup::Response { response, cache }))
            }
            LookupPlan::Serve { current, detail } => {
                drop(state);
                LookupStep::Done(Box::new(self.entry_now(object, current, detail, request)))
            }
            LookupPlan::ServeAndRevalidate(current) => {
                let permit = self.shared.clients.acquire(request.client);
                let permit = permit.filter(|_| state.pending.is_none());
                let begun =
                    permit.map(|permit| (permit, begin(&mut state.pending, epoch, request)));
                drop(state);
                if let Some((permit, pending)) = begun {
                    let request = ObjectRequest { range: None, ..request.clone() };
                    self.start_fetch(object, pending, &request, permit, true);
                }
                let found = self.entry_now(object, current, Some("revalidating"), request);
                LookupStep::Done(Box::new(found))
            }
            LookupPlan::FetchAlone { why_relayed } => {
                drop(state);
                let Some(permit) = self.shared.clients.acquire(request.client) else {
                    return LookupStep::Busy;
                };
                let pending = Arc::new(PendingFetch::new(epoch, request.client));
                let request = ObjectRequest { why_relayed, ..request.clone() };
                self.start_fetch(object, Arc::clone(&pending), &request, permit, true);
                LookupStep::Wait { pending, is_own: true }
            }
            LookupPlan::Join(pending) => {
                drop(state);
                self.shared.join(&pending.owner, request.client);
                LookupStep::Wait { pending, is_own: false }
            }
            LookupPlan::Fetch => {
                let Some(permit) = self.shared.clients.acquire(request.client) else {
                    return LookupStep::Busy;
                };
                let pending = begin(&mut state.pending, epoch, request);
                let is_loaded = state.is_loaded;
                drop(state);
                self.start_fetch(object, Arc::clone(&pending), request, permit, is_loaded);
                LookupStep::Wait { pending, is_own: true }
            }
        }
    }

    /// Decides how to answer a request from the state of its object.
    fn plan(
        &self,
        object: &CachedObject,
        state: &ObjectState,
        request: &ObjectRequest,
        is_collapsed: bool,
    ) -> LookupPlan {
        if let Some(response) = state.response.clone().filter(|it| self.is_reusable(object, it)) {
            return LookupPlan::Response(response);
        }
        let current = state.current.clone().filter(|current| current.is_servable());
        let why_relayed = request.why_relayed.or(state.why_relayed());
        let is_private = state.is_private();
        if let Some(current) = &current {
            let current = || Arc::clone(current);
            match self.shared.usage(&object.key, &current()) {
                Use::Fresh => return LookupPlan::Serve { current: current(), detail: None },
                Use::WhileRevalidating => return LookupPlan::ServeAndRevalidate(current()),
                _ => {}
            }
            let pause = state.pause.filter(|(until, _)| Instant::now() < *until);
            if let Some((_, why)) = pause
                && self.shared.is_usable_on_error(&object.key, &current())
            {
                return LookupPlan::Serve { current: current(), detail: Some(why.label()) };
            }
        }
        match &state.pending {
            _ if why_relayed.is_some() && current.is_none() => {
                LookupPlan::FetchAlone { why_relayed }
            }
            Some(_) if is_private || is_collapsed => LookupPlan::FetchAlone { why_relayed },
            Some(pending) => LookupPlan::Join(Arc::clone(pending)),
            None => LookupPlan::Fetch,
        }
    }

    /// Returns whether a response without an object can answer later requests.
    fn is_reusable(&self, object: &CachedObject, response: &BufferedResponse) -> bool {
        response.is_fresh() && !self.shared.expiry.covers(&object.key.escaped(), response.epoch)
    }

    /// Answers from a version without a request to the origin.
    fn entry_now(
        &self,
        object: &Arc<CachedObject>,
        current: Arc<ObjectVersion>,
        detail: Option<&'static str>,
        request: &ObjectRequest,
    ) -> Lookup {
        let cache = CacheStatus { detail, ..CacheStatus::default() };
        Lookup::Entry(self.entry(object, current, cache, request))
    }

    /// Starts a fetch on another thread. If the object was not loaded yet, the folder is searched
    /// first.
    fn start_fetch(
        &self,
        object: &Arc<CachedObject>,
        pending: Arc<PendingFetch>,
        request: &ObjectRequest,
        permit: Permit,
        is_loaded: bool,
    ) {
        let guard = FetchGuard { object: Arc::clone(object), pending };
        let (shared, request) = (Arc::clone(&self.shared), request.aligned());
        if is_loaded {
            let has_version = object.current().is_some_and(|it| it.is_servable());
            let owner = guard.pending.owner.clone();
            let fetch = move || fill::fetch(&shared, &guard, &request);
            self.shared.run_fetch(has_version, owner, permit, fetch);
        } else {
            // If the pool is full, dropping the guard ends the fetch.
            self.shared.loads.run(move || fill::load(&shared, guard, request, permit));
        }
    }

    /// Converts the outcome of a fetch for a request; `None` if the request needs its own fetch.
    fn resolve(
        &self,
        object: &Arc<CachedObject>,
        outcome: FetchOutcome,
        wait: FetchWait,
        request: &ObjectRequest,
    ) -> Option<Lookup> {
        let FetchWait { is_own, is_collapsed, is_stale } = wait;
        let forward = if is_stale { Forward::Stale } else { Forward::UriMiss };
        let forwarded = |status| CacheStatus {
            forward: Some(forward),
            forward_status: status,
            is_collapsed,
            ..CacheStatus::default()
        };
        let entry = |current, cache| Lookup::Entry(self.entry(object, current, cache, request));
        let failed = |error: CacheError, retry_after| {
            let detail = Some(error.kind().label());
            let cache = CacheStatus { detail, ..forwarded(None) };
            Lookup::Failed { error, retry_after, cache }
        };
        Some(match outcome {
            FetchOutcome::Loaded(current, detail) => {
                entry(current, CacheStatus { detail, ..CacheStatus::default() })
            }
            FetchOutcome::Sent { is_stored, .. } if !is_stored && !is_own => return None,
            FetchOutcome::Sent { version, status, is_stored } => {
                entry(version, CacheStatus { is_stored, ..forwarded(Some(status)) })
            }
            FetchOutcome::Relayed(..) | FetchOutcome::NotRelayed if !is_own => return None,
            FetchOutcome::Relayed(current, status, relay_slot, why) => {
                let cache = forwarded(Some(status)).relayed(why.label());
                let mut entry = self.entry(object, current, cache, request);
                entry.relay_slot = Some(relay_slot);
                Lookup::Entry(entry)
            }
            FetchOutcome::Valid(current, status) => {
                let (is_stored, is_confirmed) = (current.is_stored(), true);
                let cache = CacheStatus { is_stored, is_confirmed, ..forwarded(Some(status)) };
                entry(current, cache)
            }
            FetchOutcome::Stale(current, error) => {
                let cache =
                    CacheStatus { detail: Some(error.kind().label()), ..CacheStatus::default() };
                entry(current, cache)
            }
            FetchOutcome::Response(response) if !is_own && !response.is_for_all => return None,
            FetchOutcome::Response(response) => {
                let cache = forwarded(Some(response.status));
                Lookup::Response { response, cache }
            }
            FetchOutcome::NotRelayed => failed(CacheErrorKind::Busy.into(), None),
            FetchOutcome::Failed(error, retry_after) => failed(error, retry_after),
        })
    }
}

/// How a request waited for a fetch.
#[derive(Clone, Copy)]
struct FetchWait {
    /// Whether the fetch was started for this request.
    is_own: bool,
    /// Whether the request has waited for another request's fetch.
    is_collapsed: bool,
    /// Whether the origin was asked to validate a stale version.
    is_stale: bool,
}

/// How to answer a request.
enum LookupPlan {
    /// With a stored response without an object.
    Response(Arc<BufferedResponse>),
    /// From a stored version.
    Serve { current: Arc<ObjectVersion>, detail: Option<&'static str> },
    /// From a stored version, while a fetch validates it.
    ServeAndRevalidate(Arc<ObjectVersion>),
    /// By a fetch for this request only.
    FetchAlone {
        /// The reason why the object bypasses the disk, if it does.
        why_relayed: Option<CacheErrorKind>,
    },
    /// By joining a fetch in progress.
    Join(Arc<PendingFetch>),
    /// By a fetch that others can join.
    Fetch,
}

/// The next step of a lookup.
enum LookupStep {
    Done(Box<Lookup>),
    /// Wait for a fetch.
    Wait {
        pending: Arc<PendingFetch>,
        /// Whether the fetch was started for this request.
        is_own: bool,
    },
    /// The client has too many fetches and fills in progress.
    Busy,
}

fn begin(
    pending: &mut Option<Arc<PendingFetch>>,
    epoch: u64,
    request: &ObjectRequest,
) -> Arc<PendingFetch> {
    Arc::clone(pending.insert(Arc::new(PendingFetch::new(epoch, request.client))))
}

/// The maximum number of attempts of a request: the second one has a fetch of its own.
const MAX_ATTEMPTS: u32 = 2;
