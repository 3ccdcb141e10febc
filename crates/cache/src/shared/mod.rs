//! The state shared by all parts of a cache.

mod client_limits;
mod expiry;
mod folders;
mod objects;
mod popularity;
mod removal;
mod room;

use std::fmt;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

pub(crate) use client_limits::{ClientLimits, Permit};
use expiry::Expiry;
use folders::Folders;
pub(crate) use folders::{FolderOutcome, FolderState};
use objects::Objects;
use popularity::Popularity;
pub(crate) use room::{extent_end, is_full};
use underpass_engine::{PipePool, Report};
use underpass_protocol::caching::Use;

use crate::error::{CacheError, OpenError};
use crate::fill::Origins;
use crate::key::{CacheKey, KeyDigest};
use crate::object::CachedObject;
use crate::options::CacheOptions;
use crate::pool::{JobOwner, Pool};
use crate::store::{CacheFolder, DiskQuota, Restored};
use crate::version::ObjectVersion;

/// The state shared by all parts of a cache.
pub(crate) struct CacheState {
    pub(crate) options: CacheOptions,
    pub(crate) folder: CacheFolder,
    pub(crate) quota: Arc<DiskQuota>,
    pub(crate) origins: Origins,
    pub(crate) pipes: PipePool,
    /// Runs fills.
    pub(crate) fills: Pool,
    /// Runs requests that usually have no long response body: validations and listings.
    pub(crate) validations: Pool,
    /// Runs relays, which are as slow as their clients.
    pub(crate) relays: Pool,
    /// Runs work that only waits for the disk.
    pub(crate) loads: Pool,
    /// Syncs objects that leave memory, which can take long.
    saves: Pool,
    pub(crate) counters: Counters,
    /// The sink for bytes that are not needed (`/dev/null`).
    pub(crate) null: Arc<File>,
    /// The fetches and fills of each client.
    pub(crate) clients: ClientLimits,
    /// The relays of each client, which are as slow as the client.
    pub(crate) relaying: ClientLimits,
    pub(crate) expiry: Expiry,
    pub(crate) popularity: Popularity,
    pub(crate) folders: Folders,
    objects: Objects,
    observer: OnceLock<CacheObserver>,
    /// Whether the loss of the folder was reported.
    is_gone: AtomicBool,
    /// Whether it was reported that the disk does not accept objects.
    cannot_store: AtomicBool,
}

/// The second half of a fetch: moves the body to the disk, after its head was handled.
pub(crate) type FetchedBody = Box<dyn FnOnce() + Send>;

type CacheObserver = Box<dyn Fn(&CacheEvent<'_>) + Send + Sync>;

/// An event of a cache.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CacheEvent<'e> {
    /// A fill has ended.
    Filled(&'e FillReport<'e>),
    /// Another program removed the contents of the folder, which is empty and in use again.
    Emptied,
    /// Another program removed the folder. Nothing is stored any more until the next start.
    /// Reported once.
    FolderGone,
    /// The disk does not accept new objects, but not because it is full: it may have become
    /// read-only. Reported once, and again after a success.
    CannotStore(&'e io::Error),
    /// A version could not be synced and was dropped, because bytes of it may be lost.
    Lost {
        /// The path at the origin.
        key: &'e str,
        /// The system's error.
        error: &'e io::Error,
    },
    /// An origin did not answer a request, or sent something that is not a response.
    OriginFailed {
        /// The URL of the origin, without credentials.
        origin: &'e str,
        /// The requested path.
        key: &'e str,
        /// The reason, as a sentence.
        reason: &'e str,
    },
}

/// The report of one fill.
#[derive(Clone, Debug)]
pub struct FillReport<'r> {
    /// The path at the origin.
    pub key: &'r str,
    /// Host and port of the origin.
    pub origin: &'r str,
    /// The bytes moved, and how.
    pub report: &'r Report,
    /// The duration of the fill.
    pub elapsed: Duration,
    /// Whether the bytes were relayed to a client instead of being stored.
    pub is_relay: bool,
    /// The error; `None` if it succeeded.
    pub error: Option<CacheError>,
}

/// Counters of a running cache, and its current sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Requests to origins, including those of fills.
    pub requests: u64,
    /// The number of failed fills.
    pub failed: u64,
    /// Requests that waited for another request's fetch.
    pub collapsed: u64,
    /// Responses from the cache.
    pub hits: u64,
    /// Responses fetched from the origin, because the cache had none.
    pub misses: u64,
    /// Responses for which the origin was asked to validate a stale version.
    pub stale: u64,
    /// Bytes received from origins.
    pub origin_bytes: u64,
    /// Bytes relayed from origins to clients without being stored.
    pub relayed_bytes: u64,
    /// The number of objects, and extents of large ones, evicted to free space.
    pub evicted: u64,
    /// The number of objects dropped because of read errors of the disk.
    pub damaged: u64,
    /// Whether nothing is stored for now, because the disk has failed repeatedly.
    pub is_read_only: bool,
    /// The number of versions found to have changed at the origin.
    pub changed: u64,
    /// Bytes of all stored objects.
    pub used_bytes: u64,
    /// The number of stored objects.
    pub objects: u64,
    /// Bytes that running fills will still write, and those not stored but still being read.
    pub reserved_bytes: u64,
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) collapsed: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) origin_bytes: AtomicU64,
    pub(crate) relayed_bytes: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) changed: AtomicU64,
}

impl Counters {
    /// Adds to a counter.
    pub(crate) fn add(count: &AtomicU64, more: u64) {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

impl CacheState {
    pub(crate) fn open(options: CacheOptions) -> Result<Self, OpenError> {
        let folder = CacheFolder::open(&options.folder)?;
        let null = File::options().write(true).open("/dev/null").map_err(|source| {
            OpenError::Io { action: "opening", path: "/dev/null".into(), source }
        })?;
        let null = Arc::new(null);
        let origins = Origins::new(&options);
        let expiry = Expiry::load(folder.path().join("expired"))?;
        Ok(Self {
            folder,
            clients: ClientLimits::new(|_| MAX_PER_CLIENT, usize::MAX),
            relaying: ClientLimits::new(max_relays, MAX_RELAYS),
            expiry,
            popularity: Popularity::default(),
            folders: Folders::default(),
            quota: Arc::new(DiskQuota::new(options.size, options.min_free)),
            origins,
            pipes: PipePool::default(),
            fills: Pool::new("fill", MAX_FILLS, MAX_WAITING),
            validations: Pool::new("validation", MAX_VALIDATIONS, MAX_WAITING),
            // The number of permits is limited; a thread may end slightly later than its permit.
            relays: Pool::new("relay", MAX_RELAYS, MAX_RELAYS),
            loads: Pool::new("load", MAX_LOADS, MAX_WAITING),
            saves: Pool::new("save", 1, MAX_WAITING),
            null,
            counters: Counters::default(),
            objects: Objects::default(),
            observer: OnceLock::new(),
            is_gone: AtomicBool::new(false),
            cannot_store: AtomicBool::new(false),
            options,
        })
    }

    /// Sets the function that is called with each event; only the first call has an effect.
    pub(crate) fn observe(&self, observer: CacheObserver) -> bool {
        self.observer.set(observer).is_ok()
    }

    /// Reports a fill that has ended.
    pub(crate) fn report(&self, report: &FillReport<'_>) {
        if report.error.is_some() {
            Counters::add(&self.counters.failed, 1);
        }
        self.notify(&CacheEvent::Filled(report));
    }

    /// Reports that an origin failed to answer a request.
    pub(crate) fn origin_failed(&self, key: &CacheKey, origin: &str, reason: &str) {
        self.notify(&CacheEvent::OriginFailed { origin, key: key.as_str(), reason });
    }

    fn notify(&self, event: &CacheEvent<'_>) {
        if let Some(observer) = self.observer.get() {
            observer(event);
        }
    }

    /// Restores the contents of the folder if they were removed; returns whether they were. Objects
    /// in memory have lost their files then.
    pub(crate) fn restore_folder(&self) -> bool {
        match self.folder.restore() {
            Restored::Present => return false,
            Restored::Gone => {
                if self.is_gone() {
                    return false;
                }
                // What is open is still served, but no longer kept. Only then may others see that
                // the folder is gone.
                for (_, version) in self.stored() {
                    version.detach();
                }
                self.quota.forget_all();
                if !self.is_gone.swap(true, Ordering::Relaxed) {
                    self.notify(&CacheEvent::FolderGone);
                }
                return false;
            }
            Restored::Empty => {}
        }
        for object in self.objects.all() {
            object.detach();
        }
        self.quota.forget_all();
        self.notify(&CacheEvent::Emptied);
        true
    }

    /// Returns whether another program has removed the folder.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Reports that an object could not be stored, unless the reason is known.
    pub(crate) fn note_stored(&self, created: Result<(), &io::Error>) {
        let Err(error) = created else {
            return self.cannot_store.store(false, Ordering::Relaxed);
        };
        let is_known = is_full(error) || self.is_gone();
        if !is_known && !self.cannot_store.swap(true, Ordering::Relaxed) {
            self.notify(&CacheEvent::CannotStore(error));
        }
    }

    /// Returns the object of a key, and creates it if necessary.
    pub(crate) fn object(self: &Arc<Self>, key: &CacheKey) -> Arc<CachedObject> {
        let (object, forgotten) = self.objects.get_or_insert(key, self.options.max_in_memory);
        if !forgotten.is_empty() {
            self.release(forgotten);
        }
        object
    }

    /// Syncs and closes objects that leave memory; they stay on the disk.
    fn release(self: &Arc<Self>, objects: Vec<KeyDigest>) {
        let is_dirty = |digest: &_| self.current(digest).is_some_and(|version| version.is_dirty());
        // If the disk is too slow, they are not synced: a power failure costs their new bytes.
        let (dirty, clean): (Vec<_>, Vec<_>) = if self.saves.has_waiting() {
            (Vec::new(), objects)
        } else {
            objects.into_iter().partition(is_dirty)
        };
        for (pool, is_saved, objects) in [(&self.saves, true, dirty), (&self.loads, false, clean)] {
            let (shared, job) = (Arc::downgrade(self), objects.clone());
            let run = move || job.iter().for_each(|digest| Self::let_go(&shared, digest, is_saved));
            if !objects.is_empty() && !pool.run(run) {
                objects.iter().for_each(|digest| self.objects.release(digest));
            }
        }
    }

    /// Closes an object that leaves memory; syncs its new bytes first if `is_saved`.
    fn let_go(shared: &Weak<Self>, digest: &KeyDigest, is_saved: bool) {
        let get = || shared.upgrade()?.objects.get(digest);
        if is_saved && let Some(object) = get() {
            Self::save(shared, with_versions(vec![object]).collect());
        }
        if let Some(shared) = shared.upgrade() {
            shared.objects.release(digest);
        }
    }

    /// Syncs new bytes of versions to the disk. A version whose sync fails is dropped, because any
    /// of its bytes may be lost.
    pub(crate) fn save(
        shared: &Weak<Self>,
        versions: Vec<(Arc<CachedObject>, Arc<ObjectVersion>)>,
    ) {
        for (object, version) in versions {
            if let Err(error) = version.save()
                && let Some(shared) = shared.upgrade()
            {
                shared.notify(&CacheEvent::Lost { key: object.key.as_str(), error: &error });
                shared.mark_damaged(&object, &version);
            }
        }
    }

    /// Returns how a stored version may currently be used.
    pub(crate) fn usage(&self, key: &CacheKey, version: &ObjectVersion) -> Use {
        let head = version.head();
        if self.expiry.covers(&key.escaped(), head.epoch) {
            Use::AfterValidation
        } else {
            head.freshness(&self.options.rules).usage(SystemTime::now())
        }
    }

    /// Returns whether a stored version may be used although the origin fails.
    pub(crate) fn is_usable_on_error(&self, key: &CacheKey, version: &ObjectVersion) -> bool {
        let head = version.head();
        let freshness = head.freshness(&self.options.rules);
        !self.expiry.covers(&key.escaped(), head.epoch)
            && freshness.is_usable_on_error(SystemTime::now())
    }

    /// Runs a fetch of a client: a validation if there is a version. The body of another version is
    /// moved by a fill thread, so that other validations need not wait for its end.
    pub(crate) fn run_fetch(
        &self,
        has_version: bool,
        owner: JobOwner,
        permit: Permit,
        job: impl FnOnce() -> Option<FetchedBody> + Send + 'static,
    ) {
        let pool = if has_version { &self.validations } else { &self.fills };
        let fills = self.fills.clone();
        // If a pool is full, dropping the job ends the fetch, and dropping the body the fill.
        pool.run_for(&owner.clone(), move || {
            let Some(body) = job() else { return };
            let moving = move || {
                body();
                drop(permit);
            };
            if has_version {
                fills.run_for(&owner, moving);
            } else {
                moving();
            }
        });
    }

    /// Records that a client waits for a fetch, and admits the fetch if it was deferred.
    pub(crate) fn join(&self, owner: &JobOwner, client: Option<IpAddr>) {
        if owner.join(client) {
            self.admit();
        }
    }

    /// Lets a fetch or fill begin that others [have joined](JobOwner::join).
    pub(crate) fn admit(&self) {
        self.fills.admit();
        self.validations.admit();
    }

    /// Returns whether any job waits for a fill of this owner to end.
    pub(crate) fn is_crowded(&self, owner: &JobOwner) -> bool {
        self.fills.has_waiting_for(owner)
    }

    /// Returns all objects in memory that are stored, each with its version.
    pub(crate) fn stored(&self) -> Vec<(Arc<CachedObject>, Arc<ObjectVersion>)> {
        with_versions(self.objects.all()).collect()
    }

    /// Returns the version of an object that is in memory.
    fn current(&self, digest: &KeyDigest) -> Option<Arc<ObjectVersion>> {
        self.objects.get(digest).and_then(|object| object.current())
    }

    /// Returns the counts.
    pub(crate) fn counters(&self) -> CacheStats {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let usage = self.quota.usage();
        CacheStats {
            requests: count(&self.counters.requests),
            failed: count(&self.counters.failed),
            collapsed: count(&self.counters.collapsed),
            hits: count(&self.counters.hits),
            misses: count(&self.counters.misses),
            stale: count(&self.counters.stale),
            origin_bytes: count(&self.counters.origin_bytes),
            relayed_bytes: count(&self.counters.relayed_bytes),
            evicted: count(&self.counters.evicted),
            damaged: count(&self.counters.damaged),
            is_read_only: self.quota.is_read_only(),
            changed: count(&self.counters.changed),
            used_bytes: usage.bytes,
            objects: usage.objects,
            reserved_bytes: usage.reserved,
        }
    }
}

impl fmt::Debug for CacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheState").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Returns the objects that have a version, together with it.
fn with_versions(
    objects: Vec<Arc<CachedObject>>,
) -> impl Iterator<Item = (Arc<CachedObject>, Arc<ObjectVersion>)> {
    objects.into_iter().filter_map(|object| {
        let current = object.current()?;
        Some((object, current))
    })
}

/// The maximum number of simultaneous fills.
const MAX_FILLS: usize = 64;

/// The maximum number of simultaneous validations and listings.
const MAX_VALIDATIONS: usize = 16;

/// The maximum number of simultaneous relays.
const MAX_RELAYS: usize = 64;

/// The maximum number of fetches and fills of one client that run or wait.
const MAX_PER_CLIENT: usize = 64;

/// Returns the maximum number of relays of one client: a quarter of what others leave.
fn max_relays(others: usize) -> usize {
    (MAX_RELAYS.saturating_sub(others) / 4).max(1)
}

/// The maximum number of fills, or of objects to open, that wait for a thread.
const MAX_WAITING: usize = 1024;

/// The number of threads that open stored objects.
const MAX_LOADS: usize = 4;
