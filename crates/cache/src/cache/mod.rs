//! The interface of the cache: finds objects by their keys, and reads them.

mod folders;
mod lookup;
mod operate;
mod reader;

use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use underpass_client::download::interpret::StrongValidator;
use underpass_protocol::caching::{CacheStatus, Freshness, Use, may_store};
use underpass_protocol::request::target::Target;
use underpass_protocol::response::validator::parse_date;

use crate::error::{CacheError, OpenError};
use crate::fill::{BufferedResponse, ObjectRequest};
use crate::key::CacheKey;
use crate::object::{CachedObject, RelaySlot};
use crate::options::CacheOptions;
use crate::shared::{CacheEvent, CacheState};
use crate::store::{StoredHead, StoredUnit, is_divided, is_forwarded, is_of_content};
use crate::version::ObjectVersion;

pub use folders::FolderLookup;
pub use operate::StoredObject;
pub use reader::Reader;

/// A cache. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Cache {
    shared: Arc<CacheState>,
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
    /// The origin sent no usable response.
    Failed {
        /// The error of the last attempt.
        error: CacheError,
        /// The wait before the next attempt, if it is known.
        retry_after: Option<Duration>,
        /// How the cache handled the request.
        cache: CacheStatus,
    },
}

/// One version of an object.
#[derive(Debug)]
pub struct CacheEntry {
    shared: Arc<CacheState>,
    object: Arc<CachedObject>,
    version: Arc<ObjectVersion>,
    head: Arc<StoredHead>,
    /// The times that determine its freshness.
    pub freshness: Freshness,
    /// How the cache handled the request.
    pub cache: CacheStatus,
    cdn_loop: String,
    /// The relay that was started for this request, if the object cannot be stored.
    relay_slot: Option<RelaySlot>,
    client: Option<IpAddr>,
}

impl Cache {
    /// Opens the folder for this process alone. Fills are possible after [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// [`OpenError::InUse`] if another process or site has it open, [`OpenError::Format`] if it has
    /// other contents, [`OpenError::Io`] if it cannot be created, read or written.
    pub fn open(options: CacheOptions) -> Result<Self, OpenError> {
        Ok(Self { shared: Arc::new(CacheState::open(options)?) })
    }

    /// Starts the thread that scans the folder and syncs new bytes. `observe` is called with each
    /// event by the thread that noticed it, such as a fill with its report. Only the first call has
    /// an effect.
    pub fn start(&self, observe: impl Fn(&CacheEvent<'_>) + Send + Sync + 'static) {
        if !self.shared.observe(Box::new(observe)) {
            return;
        }
        let shared = Arc::downgrade(&self.shared);
        // Without this thread, more must be fetched again after a power failure.
        let _ =
            std::thread::Builder::new().name("cache".to_owned()).spawn(move || maintain(&shared));
    }

    /// Returns the absolute path of the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.shared.folder.path()
    }

    /// Returns the name by which this node recognizes its own requests in `CDN-Loop` (RFC 8586).
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.origins.id
    }

    /// Returns the key of a target; see [`CacheKey::of`]. Object stores would interpret the query
    /// as another request, so it is dropped; and everything in the path is percent-encoded, because
    /// some stores decode `+` as a space.
    #[must_use]
    pub fn key(&self, target: &Target<'_>) -> Option<CacheKey> {
        if self.has_stores() {
            CacheKey::new(&target.path, target.is_folder, b"")
        } else {
            CacheKey::of(target)
        }
    }

    /// Returns whether an origin is an object store.
    #[must_use]
    pub fn has_stores(&self) -> bool {
        self.shared.origins.has_stores()
    }

    /// Returns the names of the request fields by which objects vary, in lower case.
    #[must_use]
    pub fn vary_on(&self) -> &[String] {
        &self.shared.options.vary_on
    }

    /// Finds an object that is open, fresh and of known length, without waiting and without a
    /// request to the origin; `None` if [`find`](Self::find) is needed. If the object is sent, it
    /// must be [counted](CacheEntry::count_request).
    #[must_use]
    pub fn find_open(&self, key: &CacheKey, request: &ObjectRequest) -> Option<Box<CacheEntry>> {
        let object = self.shared.object(key);
        let state = object.state();
        if state.response.is_some() {
            return None;
        }
        let current = state.current.clone().filter(|current| current.is_servable())?;
        drop(state);
        current.len()?;
        if self.shared.usage(&object.key, &current) != Use::Fresh {
            return None;
        }
        Some(self.entry(&object, current, CacheStatus::default(), request))
    }

    fn entry(
        &self,
        object: &Arc<CachedObject>,
        version: Arc<ObjectVersion>,
        cache: CacheStatus,
        request: &ObjectRequest,
    ) -> Box<CacheEntry> {
        // The readers of a large object report which extents they use.
        if !is_divided(version.len()) {
            self.shared.quota.touch(&StoredUnit::whole(object.key.digest()));
        }
        let head = version.head();
        let freshness = head.freshness(&self.shared.options.rules);
        let ttl = Some(freshness.remaining(SystemTime::now()));
        Box::new(CacheEntry {
            shared: Arc::clone(&self.shared),
            object: Arc::clone(object),
            version,
            head,
            freshness,
            cache: CacheStatus { ttl, ..cache },
            cdn_loop: request.cdn_loop.clone(),
            relay_slot: None,
            client: request.client,
        })
    }
}

impl CacheEntry {
    /// Counts a request that it answers, for [`Cache::popular`].
    pub fn count_request(&self) {
        self.shared.popularity.count(&self.object.key);
    }

    /// Returns the length in bytes, if known: that of a chunked body is unknown until its end.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        self.version.len()
    }

    /// Returns whether the object is known to be empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Returns whether the cache keeps the object for later requests.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.version.is_stored()
    }

    /// Returns whether the origin allows caches to keep the object.
    #[must_use]
    pub fn may_be_stored(&self) -> bool {
        let status = self.cache.forward_status.unwrap_or(200);
        may_store(status, &self.head.fields, &self.shared.options.vary_on).is_ok()
    }

    /// Returns the name under which it is stored. Each fetched version gets a new name, even if it
    /// has the same contents.
    #[must_use]
    pub fn version_name(&self) -> &str {
        &self.head.body
    }

    /// Returns the value of a field of the origin's response; the name is in lower case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    /// Returns whether no other version can have the date in `Last-Modified`: this one was sent at
    /// least a second later (RFC 9110 8.8.2.2).
    #[must_use]
    pub fn has_strong_date(&self) -> bool {
        match self.version.validator() {
            Some(StrongValidator::Date(_) | StrongValidator::DateAndTag(..)) => true,
            // The origin confirms a tag, so the date of its latest response counts.
            Some(StrongValidator::Tag(_)) => {
                let modified = self.field("last-modified");
                let modified = modified.and_then(|value| parse_date(value.as_bytes()));
                modified.is_some_and(|it| it + Duration::from_secs(1) <= self.freshness.date())
            }
            None => false,
        }
    }

    /// Returns the fields that are forwarded to clients unchanged, for the whole object or a part.
    pub fn forwarded_fields(&self, is_part: bool) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.head.fields.iter();
        let fields =
            fields.filter(move |(name, _)| is_forwarded(name) && !(is_part && is_of_content(name)));
        fields.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns how many bytes of a range are present in the file.
    #[must_use]
    pub fn present(&self, range: &Range<u64>) -> u64 {
        self.version.count_in(range)
    }

    /// Creates a reader. Call [`Reader::wait_for`] for each range before reading it.
    #[must_use]
    pub fn reader(&self) -> Reader {
        let (object, version) = (Arc::clone(&self.object), Arc::clone(&self.version));
        let relay_slot =
            self.relay_slot.as_ref().and_then(|relay_slot| relay_slot.lock().ok()?.take());
        let (shared, cdn_loop) = (Arc::clone(&self.shared), self.cdn_loop.clone());
        Reader::new(shared, object, version, cdn_loop, self.client, relay_slot)
    }
}

/// Scans the folder once, and then enforces its quota and syncs new bytes for as long as the cache
/// exists.
fn maintain(weak: &Weak<CacheState>) {
    if let Some(shared) = weak.upgrade() {
        shared.folder.scan(&mut |digest, units| shared.quota.add_existing(&digest, units));
        shared.shrink();
    }
    loop {
        std::thread::sleep(SAVE_INTERVAL);
        let Some(shared) = weak.upgrade() else { return };
        shared.restore_folder();
        shared.shrink();
        shared.drop_restored();
        let versions = shared.stored();
        drop(shared);
        CacheState::save(weak, versions);
    }
}

/// The interval at which new bytes are synced: a power failure loses little more.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
