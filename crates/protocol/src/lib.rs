//! The meaning of HTTP to a file server and its client: requests, answers, fields and formats.
//!
//! Everything here is pure: bytes and metadata go in, values and bytes come out. The crate uses
//! no file, clock, socket or transfer; clippy.toml lists the functions of std that it must not
//! call. Where a rule depends on the time, the caller passes it in.
//!
//! ```
//! use underpass_protocol::request::target::Target;
//!
//! let target = Target::parse(b"/a%20b/./c/?sort=size", b"")?;
//! assert_eq!(*target.path, *b"a b/c");
//! assert!(target.is_folder);
//! assert!(Target::parse(b"/../etc/passwd", b"").is_err());
//! # Ok::<(), underpass_protocol::request::target::TargetError>(())
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod archive; // where each byte of an archive of a folder is
pub mod auth; // access rules, and what they allow
pub mod caching; // what a shared cache may store, and for how long
pub mod chunked; // bodies in chunks
pub mod digest; // digests, and the fields that carry them
mod link; // names in links
pub mod listing; // the query and the order of a folder's listing
pub mod request; // heads of requests, and what they ask for
pub mod response; // what is answered, and how it is written
pub mod upload; // which part of which upload a body is
mod version; // the facts of a file

pub use link::{encode_path, encode_segment};
pub use version::FileVersion;
