//! A disk cache for an origin's files, which are filled and read at the same time.
//!
//! An object of the origin is a file here, under a name made from its URL. A fill moves a range of
//! it from the origin into the file inside the kernel; a reader sends what has arrived from the
//! same file. All bytes of a file belong to one version of the object: another version gets a new
//! file.
//!
//! The crate has no runtime. Fills run on threads of their own, a bounded number of them, and
//! readers await what they need by futures that any runtime can poll.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod cache;
mod error;
mod fill;
mod generation;
mod key;
mod node;
mod object;
mod options;
mod pool;
mod ranges;
mod store;

pub use cache::{Cache, CacheEntry, Lookup, Reader, StoredObject};
pub use error::{CacheError, CacheErrorKind, OpenError};
pub use fill::{BufferedResponse, ObjectRequest, RedirectHost, ResponseContent};
pub use key::Key;
pub use node::{CacheEvent, CacheStats, FillReport};
pub use options::{CacheOptions, KeepFree, OriginOptions};
