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

pub mod archive;
pub mod auth;
pub mod caching;
pub mod chunked;
pub mod digest;
mod link;
pub mod listing;
pub mod request;
pub mod response;
pub mod upload;
mod version;

pub use link::{encode_path, encode_segment};
pub use version::{FileTime, FileVersion};
