//! What all parts of a cache share.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use underpass_engine::PipePool;

use crate::failure::{Failure, OpenError};
use crate::fill::Origins;
use crate::generation::Generation;
use crate::key::{Digest, Key};
use crate::object::Object;
use crate::options::CacheOptions;
use crate::pool::Pool;
use crate::store::{Folder, Full, Room};

/// What all parts of a cache share.
pub(crate) struct Node {
    pub(crate) options: CacheOptions,
    pub(crate) folder: Folder,
    pub(crate) room: Room,
    pub(crate) origins: Origins,
    pub(crate) pipes: PipePool,
    /// Runs fills.
    pub(crate) fills: Pool,
    /// Runs what only waits for the disk.
    pub(crate) loads: Pool,
    pub(crate) counters: Counts,
    objects: Mutex<HashMap<Digest, Arc<Object>>>,
    observer: OnceLock<Observer>,
}

type Observer = Box<dyn Fn(&FillReport<'_>) + Send + Sync>;

/// What one fill did.
#[derive(Clone, Debug)]
pub struct FillReport<'r> {
    /// The path at the origin.
    pub key: &'r str,
    /// Host and port of the origin.
    pub origin: &'r str,
    /// The offset of the first byte.
    pub from: u64,
    /// The number of bytes that were moved to the disk.
    pub bytes: u64,
    /// The bytes that were copied between user and kernel space, counted once for each direction.
    pub user_space_bytes: u64,
    /// The mechanism that has moved most of them.
    pub mechanism: Option<&'static str>,
    /// How long that took.
    pub elapsed: Duration,
    /// Why it was given up, if it was.
    pub failure: Option<Failure>,
}

/// Counts of a running cache, and its present sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Questions to an origin, those of fills included.
    pub requests: u64,
    /// Fills that were given up.
    pub failed: u64,
    /// Requests that waited for the question of another one.
    pub collapsed: u64,
    /// Bytes that came from origins.
    pub origin_bytes: u64,
    /// Objects that were removed to make room.
    pub evicted: u64,
    /// Versions that were found to have changed at the origin.
    pub changed: u64,
    /// Bytes of all stored objects.
    pub used_bytes: u64,
    /// The number of stored objects.
    pub objects: u64,
    /// Bytes that running fills will still write.
    pub reserved_bytes: u64,
}

/// The counts that go up.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) collapsed: AtomicU64,
    pub(crate) origin_bytes: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) changed: AtomicU64,
}

impl Counts {
    /// Adds to one of the counts.
    pub(crate) fn add(count: &AtomicU64, more: u64) {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

impl Node {
    pub(crate) fn open(options: CacheOptions) -> Result<Self, OpenError> {
        let folder = Folder::open(&options.folder)?;
        let origins = Origins::new(&options);
        let max_fills = (FILLS_PER_ORIGIN * options.origins.len()).min(MAX_FILLS);
        Ok(Self {
            folder,
            room: Room::new(options.size, options.keep_free),
            origins,
            pipes: PipePool::default(),
            fills: Pool::new("fill", max_fills),
            loads: Pool::new("load", LOADS),
            counters: Counts::default(),
            objects: Mutex::default(),
            observer: OnceLock::new(),
            options,
        })
    }

    /// Sets the function that is called with the report of each fill; the first one counts.
    pub(crate) fn observe(&self, observer: Observer) {
        let _ = self.observer.set(observer);
    }

    /// Reports what a fill did.
    pub(crate) fn report(&self, report: &FillReport<'_>) {
        if report.failure.is_some() {
            Counts::add(&self.counters.failed, 1);
        }
        if let Some(observer) = self.observer.get() {
            observer(report);
        }
    }

    /// Returns the object of a key, which may be new.
    pub(crate) fn object(&self, key: &Key) -> Arc<Object> {
        let mut objects = self.objects();
        if let Some(object) = objects.get(key.digest()) {
            return Arc::clone(object);
        }
        let mut forgotten = Vec::new();
        if objects.len() >= MAX_OBJECTS {
            // On the disk they stay.
            let is_idle = |object: &Arc<Object>| Arc::strong_count(object) == 1 && object.is_idle();
            let idle = objects.iter().filter(|(_, object)| is_idle(object));
            let idle: Vec<_> = idle.map(|(digest, _)| *digest).take(MAX_OBJECTS / 8).collect();
            forgotten.extend(idle.iter().filter_map(|digest| objects.remove(digest)));
        }
        let object = Arc::new(Object::new(key.clone()));
        objects.insert(*key.digest(), Arc::clone(&object));
        drop(objects);
        if !forgotten.is_empty() {
            self.loads.run(move || {
                forgotten.iter().filter_map(|object| object.current()).for_each(|it| it.save());
            });
        }
        object
    }

    /// Returns all versions that are served.
    pub(crate) fn generations(&self) -> Vec<Arc<Generation>> {
        self.objects().values().filter_map(|object| object.current()).collect()
    }

    /// Reserves room for a fill, for which other objects may have to go.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), Failure> {
        for _ in 0..MAX_REMOVED_AT_ONCE {
            let is_pinned = |digest: &Digest| {
                let object = self.objects().get(digest).cloned();
                let current = object.and_then(|object| object.current());
                current.is_some_and(|current| current.is_filling())
            };
            match self.room.try_reserve(bytes, self.folder.objects(), is_pinned) {
                Ok(()) => return Ok(()),
                Err(Full::ForGood) => return Err(Failure::NoRoom),
                Err(Full::Remove(digest)) => {
                    self.remove(&digest);
                    Counts::add(&self.counters.evicted, 1);
                }
            }
        }
        Err(Failure::NoRoom)
    }

    /// Removes an object from the disk and from memory. Its readers still get all of it.
    pub(crate) fn remove(&self, digest: &Digest) -> bool {
        let object = self.objects().get(digest).cloned();
        let was_there = object.is_some_and(|object| object.detach());
        self.folder.remove(digest);
        self.room.removed(digest) > 0 || was_there
    }

    /// Removes a version of an object that turned out to be of no use, unless another one has taken
    /// its place.
    pub(crate) fn discard(&self, object: &Object, generation: &Arc<Generation>, why: Failure) {
        let was_stored = generation.is_stored();
        object.drop_generation(generation, why);
        let digest = object.key.digest();
        if was_stored && self.folder.remove_version(digest, &generation.head().body) {
            self.room.removed(digest);
        }
    }

    /// Returns the counts.
    pub(crate) fn counters(&self) -> Counters {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (used_bytes, objects, reserved_bytes) = self.room.usage();
        Counters {
            requests: count(&self.counters.requests),
            failed: count(&self.counters.failed),
            collapsed: count(&self.counters.collapsed),
            origin_bytes: count(&self.counters.origin_bytes),
            evicted: count(&self.counters.evicted),
            changed: count(&self.counters.changed),
            used_bytes,
            objects,
            reserved_bytes,
        }
    }

    fn objects(&self) -> MutexGuard<'_, HashMap<Digest, Arc<Object>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// The maximum number of fills at a time for each origin.
const FILLS_PER_ORIGIN: usize = 16;

/// The maximum number of fills at a time.
const MAX_FILLS: usize = 64;

/// The number of threads that open stored objects.
const LOADS: usize = 4;

/// The number of objects in memory above which idle ones are forgotten. Each has two descriptors.
const MAX_OBJECTS: usize = 2048;

/// The maximum number of objects that are removed to make room for one fill.
const MAX_REMOVED_AT_ONCE: usize = 100_000;
