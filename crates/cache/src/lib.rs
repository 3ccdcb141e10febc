//! A disk cache of an origin's files, which can be read while they are being filled.
//!
//! Each object of the origin is a file in the cache, with a name derived from its URL. A fill moves
//! a range of it from the origin into the file inside the kernel; a reader sends the bytes that
//! have arrived from the same file. All bytes of a file belong to one version of the object:
//! another version gets a new file.
//!
//! The crate has no runtime. Fills run on a limited number of threads, and readers wait by futures
//! that any runtime can poll.
//!
//! The terms, in the order in which a request encounters them:
//!
//! | word | meaning |
//! | --- | --- |
//! | `CacheKey` | the name of an object, made from its URL |
//! | `CachedObject` | an object in memory: its current version, and the fetch in progress |
//! | `Lookup` | what a request finds: an entry, a response without an object, or a failure |
//! | `PendingFetch` | a request to the origin; others wait for its `FetchOutcome` too |
//! | `ObjectVersion` | one version of an object: its file, the bytes that are present, its fills |
//! | `StoredHead` | the metadata of a version, which its journal keeps on the disk |
//! | `StoredUnit` | what is evicted at once: an object, or an extent of a large one |
//! | `CacheEntry`, `Reader` | a version for one request; reads it, and starts fills of what is missing |
//!
//! ```
//! use std::time::Duration;
//! use underpass_cache::{Cache, CacheOptions, OriginOptions};
//! use underpass_client::{Credentials, TlsSetup, Url};
//! use underpass_engine::{MinFree, Policy};
//! use underpass_protocol::caching::FreshnessRules;
//! use underpass_protocol::request::target::Target;
//!
//! # let temporary = tempfile::tempdir()?;
//! # let folder = temporary.path().to_owned();
//! let url = Url::parse("http://192.0.2.1/files")?;
//! let cache = Cache::open(CacheOptions {
//!     folder,
//!     origins: vec![OriginOptions { url, credentials: Credentials::None, bucket: None }],
//!     tls: TlsSetup::default(),
//!     redirects: Vec::new(),
//!     vary_on: Vec::new(),
//!     size: Some(1 << 30),
//!     min_free: MinFree::Percent(5),
//!     rules: FreshnessRules::default(),
//!     timeout: Duration::from_secs(60),
//!     policy: Policy::default(),
//!     max_in_memory: 100,
//! })?;
//! let key = cache.key(&Target::parse(b"/disk.img", b"")?).expect("a short path");
//! assert!(!cache.purge(&key)?, "nothing is stored yet");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod cache;
mod error;
mod fill;
mod key;
mod object;
mod options;
mod pool;
mod ranges;
mod shared;
mod store;
mod version;

pub use cache::{Cache, CacheEntry, FolderLookup, Lookup, Reader, StoredObject};
pub use error::{CacheError, CacheErrorKind, ConnectionFault, OpenError, ResponseFault};
pub use fill::{
    BufferedResponse, FolderEntry, FolderFailure, FolderListing, ObjectRequest, RedirectHost,
    ResponseContent,
};
pub use key::CacheKey;
pub use options::{CacheOptions, OriginOptions, VaryError, vary_field};
pub use shared::{CacheEvent, CacheStats, FillReport};
