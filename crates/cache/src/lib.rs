//! A store on disk of what an origin serves, which is filled and read at once.
//!
//! An object of the origin is a file here, under a name made from its URL. A fill moves a range of
//! it from the origin into the file inside the kernel; a reader sends what has arrived from the
//! same file. All bytes of a file are of one version of the object: when the origin has another
//! one, a new file is begun.
//!
//! The crate has no runtime. Fills run on threads of their own, a bounded number of them, and
//! readers await what they need by futures that any runtime can poll.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod cache;
mod failure;
mod fill;
mod generation;
mod key;
mod node;
mod object;
mod options;
mod pool;
mod ranges;
mod store;

pub use cache::{Cache, Entry, Found, Reader, StoredObject, Wish};
pub use failure::{Failure, OpenError};
pub use fill::{Content, RedirectHost, Reply};
pub use key::Key;
pub use node::{Counters, FillReport};
pub use options::{CacheOptions, KeepFree, OriginOptions};
