//! The bytes of a connection: TLS, incoming heads and bodies, and the digests that check them.
//!
//! Server and client share this code. It neither parses requests nor chooses responses, and does
//! not depend on a runtime: blocking calls take a deadline and a flag that cancels them.
//!
//! ```
//! use std::io::Write;
//! use std::os::unix::net::UnixStream;
//! use underpass_transport::incoming::{BodyFraming, Incoming};
//!
//! let (mut peer, stream) = UnixStream::pair()?;
//! stream.set_nonblocking(true)?;
//! peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")?;
//! let mut incoming = Incoming::new(stream, Vec::new(), None, None);
//! let head = incoming.head(8192)?.expect("a head");
//! assert!(head.ends_with(b"\r\n\r\n"));
//! assert_eq!(incoming.memory(BodyFraming::Length(5), 1024)?, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod digest;
pub mod incoming;
mod interruptible;
mod loopback;
mod reachable;
mod session_facts;
pub mod stream;
pub mod tls;
mod trust;

pub use interruptible::interruptible;
pub use loopback::limit_loopback_buffer;
pub use reachable::{ReachableAddress, reachable_addresses};
