//! The cache as a server uses it: objects by their keys, and readers of them.

mod folders;
mod operate;
mod reader;

use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use underpass_protocol::caching::{CacheStatus, Forward, Freshness, Use};
use underpass_protocol::request::target::Target;

use crate::error::{CacheError, CacheErrorKind, OpenError};
use crate::fill::{self, BufferedResponse, ObjectRequest};
use crate::generation::Generation;
use crate::key::CacheKey;
use crate::object::{CachedObject, FetchGuard, FetchOutcome, PendingFetch, RelaySlot};
use crate::options::CacheOptions;
use crate::shared::{CacheEvent, Counters, Permit, Shared};
use crate::store::{StoredHead, StoredUnit, is_divided, is_forwarded, is_of_content};

pub use folders::FolderLookup;
pub use operate::StoredObject;
pub use reader::Reader;

/// A cache. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Cache {
    shared: Arc<Shared>,
}

/// The result of a lookup in the cache.
#[derive(Debug)]
pub enum Lookup {
    /// An object, all of which is present or can be fetched.
    Entry(Box<CacheEntry>),
    /// The origin's response without an object: an error or a redirect.
    Response {
        /// The response, read into memory.
        response: Arc<BufferedResponse>,
        /// How the cache handled the request.
        cache: CacheStatus,
    },
    /// The origin has sent no usable response.
    Failed {
        /// Why.
        error: CacheError,
        /// How long to wait before the next attempt, if that is known.
        retry_after: Option<Duration>,
        /// How the cache handled the request.
        cache: CacheStatus,
    },
}

/// An object in one version.
#[derive(Debug)]
pub struct CacheEntry {
    shared: Arc<Shared>,
    object: Arc<CachedObject>,
    generation: Arc<Generation>,
    head: Arc<StoredHead>,
    freshness: Freshness,
    /// How the cache handled the request.
    pub cache: CacheStatus,
    cdn_loop: String,
    /// The relay that was started for this request, if the object cannot be stored.
    relay_slot: Option<RelaySlot>,
    client: Option<IpAddr>,
}

impl Cache {
    /// Opens the folder for this process alone. Fills can begin after [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(options: CacheOptions) -> Result<Self, OpenError> {
        Ok(Self { shared: Arc::new(Shared::open(options)?) })
    }

    /// Starts the thread that scans the folder and syncs new bytes. `observe` is called with
    /// each event by the thread that noticed it: that of a fill with its report. Only the first call
    /// has an effect.
    pub fn start(&self, observe: impl Fn(&CacheEvent<'_>) + Send + Sync + 'static) {
        if !self.shared.observe(Box::new(observe)) {
            return;
        }
        let shared = Arc::downgrade(&self.shared);
        // Without this thread, more has to be fetched again after a power failure.
        let _ =
            std::thread::Builder::new().name("cache".to_owned()).spawn(move || maintain(&shared));
    }

    /// Returns the absolute path of the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.shared.folder.path()
    }

    /// Returns by which name this node recognizes its own requests (RFC 8586).
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.origins.id
    }

    /// Returns the key of a target; see [`CacheKey::of`]. Object stores have no queries for clients, and
    /// without one they know folders only by listings, which have no key; a `+` of a path means a
    /// space to some of them, so that all is escaped.
    #[must_use]
    pub fn key(&self, target: &Target<'_>) -> Option<CacheKey> {
        match self.has_stores() {
            true => CacheKey::new(&target.path, target.is_folder, b""),
            false => CacheKey::of(target),
        }
    }

    /// Returns whether an origin is an object store.
    #[must_use]
    pub fn has_stores(&self) -> bool {
        self.shared.origins.has_stores()
    }

    /// Returns the names of the fields of clients by which objects vary, in lower case.
    #[must_use]
    pub fn vary_on(&self) -> &[String] {
        &self.shared.options.vary_on
    }

    /// Finds an object that is open, fresh and of known length, without waiting and without a request
    /// to the origin; `None` for everything else, for which there is [`find`](Self::find).
    #[must_use]
    pub fn find_open(&self, key: &CacheKey, request: &ObjectRequest) -> Option<Box<CacheEntry>> {
        let object = self.shared.object(key);
        let state = object.state();
        if state.response.is_some() {
            return None;
        }
        let current = state.current.clone().filter(|current| current.broken().is_none())?;
        drop(state);
        current.len()?;
        if self.shared.usage(&object.key, &current) != Use::Fresh {
            return None;
        }
        self.shared.popularity.count(key);
        Some(self.entry(&object, current, CacheStatus::default(), request))
    }

    /// Finds an object in the cache or at the origin. Concurrent requests for one object share one
    /// fetch.
    pub async fn find(&self, key: &CacheKey, request: &ObjectRequest) -> Lookup {
        self.shared.popularity.count(key);
        let object = self.shared.object(key);
        let mut is_collapsed = false;
        for _ in 0..MAX_ATTEMPTS {
            let (pending, is_own) = match self.look_up(&object, request) {
                LookupStep::Done(found) => return *found,
                LookupStep::Wait(pending, is_own) => (pending, is_own),
                LookupStep::Busy => break,
            };
            if !is_own {
                is_collapsed = true;
                Counters::add(&self.shared.counters.collapsed, 1);
            }
            let outcome = pending.outcome().await;
            let wait = FetchWait { is_own, is_collapsed };
            if let Some(found) = self.resolve(&object, outcome, wait, request) {
                return found;
            }
        }
        let cache = CacheStatus { forward: Some(Forward::UriMiss), ..CacheStatus::default() };
        Lookup::Failed { error: CacheErrorKind::Busy.into(), retry_after: None, cache }
    }

    /// Uses the current state of an object, and starts a fetch if that is not enough.
    fn look_up(&self, object: &Arc<CachedObject>, request: &ObjectRequest) -> LookupStep {
        let mut state = object.state();
        if let Some(response) = state.response.clone().filter(|it| self.is_reusable(object, it)) {
            let cache = CacheStatus { detail: Some("negative"), ..CacheStatus::default() };
            return LookupStep::Done(Box::new(Lookup::Response { response, cache }));
        }
        let current = state.current.clone().filter(|current| current.broken().is_none());
        let usage = current.as_ref().map(|current| self.shared.usage(&object.key, current));
        let bypasses_disk =
            request.is_relayed || state.no_room_until.is_some_and(|until| Instant::now() < until);
        let is_paused = state.pause_until.is_some_and(|until| Instant::now() < until);
        let is_private = state.private_until.is_some_and(|until| Instant::now() < until);
        match (current, usage) {
            (Some(current), Some(Use::Fresh)) => {
                drop(state);
                return self.entry_now(object, current, None, request);
            }
            (Some(current), Some(Use::WhileRevalidating)) => {
                let permit = self.shared.clients.acquire(request.client);
                let permit = permit.filter(|_| state.pending.is_none());
                let begun = permit.map(|permit| (permit, begin(&mut state.pending)));
                drop(state);
                if let Some((permit, pending)) = begun {
                    let request = ObjectRequest { range: None, ..request.clone() };
                    self.start_fetch(object, pending, &request, permit);
                }
                return self.entry_now(object, current, Some("revalidating"), request);
            }
            (Some(current), _)
                if is_paused && self.shared.is_usable_on_error(&object.key, &current) =>
            {
                drop(state);
                let detail = Some(CacheErrorKind::ServerError.label());
                return self.entry_now(object, current, detail, request);
            }
            (current, _)
                if bypasses_disk && current.is_none() || is_private && state.pending.is_some() =>
            {
                drop(state);
                let Some(permit) = self.shared.clients.acquire(request.client) else {
                    return LookupStep::Busy;
                };
                let pending = Arc::new(PendingFetch::default());
                let request = ObjectRequest { is_relayed: bypasses_disk, ..request.clone() };
                self.start_fetch(object, Arc::clone(&pending), &request, permit);
                return LookupStep::Wait(pending, true);
            }
            _ => {}
        }
        if let Some(pending) = &state.pending {
            return LookupStep::Wait(Arc::clone(pending), false);
        }
        let Some(permit) = self.shared.clients.acquire(request.client) else {
            return LookupStep::Busy;
        };
        let pending = begin(&mut state.pending);
        let is_loaded = state.is_loaded;
        drop(state);
        if is_loaded {
            self.start_fetch(object, Arc::clone(&pending), request, permit);
        } else {
            let guard = FetchGuard { object: Arc::clone(object), pending: Arc::clone(&pending) };
            let (shared, request) = (Arc::clone(&self.shared), request.aligned());
            self.shared.loads.run(move || fill::load(&shared, guard, request, permit));
        }
        LookupStep::Wait(pending, true)
    }

    /// Returns whether a response without an object answers later requests.
    fn is_reusable(&self, object: &CachedObject, response: &BufferedResponse) -> bool {
        response.is_fresh() && !self.shared.expiry.covers(&object.key.escaped(), response.requested)
    }

    /// Answers from a version without asking the origin.
    fn entry_now(
        &self,
        object: &Arc<CachedObject>,
        current: Arc<Generation>,
        detail: Option<&'static str>,
        request: &ObjectRequest,
    ) -> LookupStep {
        let cache = CacheStatus { detail, ..CacheStatus::default() };
        LookupStep::Done(Box::new(Lookup::Entry(self.entry(object, current, cache, request))))
    }

    /// Starts a fetch on another thread.
    fn start_fetch(
        &self,
        object: &Arc<CachedObject>,
        pending: Arc<PendingFetch>,
        request: &ObjectRequest,
        permit: Permit,
    ) {
        let guard = FetchGuard { object: Arc::clone(object), pending };
        let (shared, request) = (Arc::clone(&self.shared), request.aligned());
        // If the pool is full, dropping the guard ends the fetch.
        self.shared.fills.run_for(permit.client(), move || {
            fill::fetch(&shared, &guard, &request);
            drop(permit);
        });
    }

    /// Returns what an outcome means for a request; `None` if the request needs a fetch of its own.
    fn resolve(
        &self,
        object: &Arc<CachedObject>,
        outcome: FetchOutcome,
        wait: FetchWait,
        request: &ObjectRequest,
    ) -> Option<Lookup> {
        let FetchWait { is_own, is_collapsed } = wait;
        let forwarded = |forward, status| CacheStatus {
            forward: Some(forward),
            forward_status: status,
            is_collapsed,
            ..CacheStatus::default()
        };
        let entry = |current, cache| Lookup::Entry(self.entry(object, current, cache, request));
        Some(match outcome {
            FetchOutcome::Loaded(current) => entry(current, CacheStatus::default()),
            FetchOutcome::Sent(current, status) => {
                let is_stored = current.is_stored();
                if !is_stored && !is_own {
                    return None;
                }
                let cache = CacheStatus { is_stored, ..forwarded(Forward::UriMiss, Some(status)) };
                entry(current, cache)
            }
            FetchOutcome::Relayed(..) if !is_own => return None,
            FetchOutcome::Relayed(current, status, relay_slot) => {
                let cache = forwarded(Forward::UriMiss, Some(status)).relayed();
                let mut entry = self.entry(object, current, cache, request);
                entry.relay_slot = Some(relay_slot);
                Lookup::Entry(entry)
            }
            FetchOutcome::Valid(current, status) => {
                let cache =
                    CacheStatus { is_stored: true, ..forwarded(Forward::Stale, Some(status)) };
                entry(current, cache)
            }
            FetchOutcome::Stale(current, error) => {
                let cache =
                    CacheStatus { detail: Some(error.kind().label()), ..CacheStatus::default() };
                entry(current, cache)
            }
            FetchOutcome::Response(response) if !is_own && !response.is_for_all => return None,
            FetchOutcome::Response(response) => {
                let cache = forwarded(Forward::UriMiss, Some(response.status));
                Lookup::Response { response, cache }
            }
            FetchOutcome::Failed(error, retry_after) => {
                let detail = Some(error.kind().label());
                let cache = CacheStatus { detail, ..forwarded(Forward::UriMiss, None) };
                Lookup::Failed { error, retry_after, cache }
            }
        })
    }

    fn entry(
        &self,
        object: &Arc<CachedObject>,
        generation: Arc<Generation>,
        cache: CacheStatus,
        request: &ObjectRequest,
    ) -> Box<CacheEntry> {
        // The readers of a large object report which extents they use.
        if !is_divided(generation.len()) {
            self.shared.quota.touch(&StoredUnit::whole(object.key.digest()));
        }
        let head = generation.head();
        let freshness = head.freshness(&self.shared.options.rules);
        let ttl = Some(freshness.remaining(SystemTime::now()));
        Box::new(CacheEntry {
            shared: Arc::clone(&self.shared),
            object: Arc::clone(object),
            generation,
            head,
            freshness,
            cache: CacheStatus { ttl, ..cache },
            cdn_loop: request.cdn_loop.clone(),
            relay_slot: None,
            client: request.client,
        })
    }
}

/// How a request waited for a fetch.
#[derive(Clone, Copy)]
struct FetchWait {
    /// Whether the fetch began for this request.
    is_own: bool,
    /// Whether the request has waited for that of another one.
    is_collapsed: bool,
}

/// The next step of a lookup.
enum LookupStep {
    Done(Box<Lookup>),
    /// Wait for a fetch; `true` if it was started for this request.
    Wait(Arc<PendingFetch>, bool),
    /// The client has too many fetches and fills in progress.
    Busy,
}

fn begin(pending: &mut Option<Arc<PendingFetch>>) -> Arc<PendingFetch> {
    Arc::clone(pending.insert(Arc::default()))
}

impl CacheEntry {
    /// Returns the length in bytes, once it is known: that of a chunked body is known at its end.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        self.generation.len()
    }

    /// Returns whether the object is known to be empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Returns the value of a field of the origin, whose name is in lower case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    /// Returns the fields that are forwarded to clients unchanged, with the whole object or a part.
    pub fn forwarded_fields(&self, is_part: bool) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.head.fields.iter();
        let fields =
            fields.filter(move |(name, _)| is_forwarded(name) && !(is_part && is_of_content(name)));
        fields.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns its age in seconds, for `Age`.
    #[must_use]
    pub fn age(&self, now: SystemTime) -> u64 {
        self.freshness.age(now).as_secs()
    }

    /// Returns the time at which the origin generated the response, for `Date`.
    #[must_use]
    pub fn date(&self) -> SystemTime {
        self.freshness.date()
    }

    /// Returns how many bytes of a range are present in the file.
    #[must_use]
    pub fn present(&self, range: &Range<u64>) -> u64 {
        self.generation.count_in(range)
    }

    /// Creates a reader. Each range must be given to [`Reader::wait_for`] before it is read.
    #[must_use]
    pub fn reader(&self) -> Reader {
        let (object, generation) = (Arc::clone(&self.object), Arc::clone(&self.generation));
        let relay_slot =
            self.relay_slot.as_ref().and_then(|relay_slot| relay_slot.lock().ok()?.take());
        let requester = (self.cdn_loop.clone(), self.client);
        Reader::new(Arc::clone(&self.shared), object, generation, requester, relay_slot)
    }
}

/// Scans the folder once, and then keeps it within its quota and syncs new bytes for as long as the
/// cache exists.
fn maintain(shared: &Weak<Shared>) {
    if let Some(shared) = shared.upgrade() {
        shared.folder.scan(&mut |digest, units| shared.quota.add_existing(&digest, units));
        shared.shrink();
    }
    loop {
        std::thread::sleep(SAVE_INTERVAL);
        let Some(shared) = shared.upgrade() else { return };
        shared.restore_folder();
        shared.shrink();
        let generations = shared.generations();
        drop(shared);
        generations.iter().for_each(|generation| generation.save());
    }
}

/// How often a request is retried because the fetch that it waited for cannot be shared.
const MAX_ATTEMPTS: u32 = 3;

/// The interval at which new bytes are synced: a power failure loses little more.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
