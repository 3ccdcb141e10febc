//! The bytes of a connection: TLS, incoming heads and bodies, and the digests that check them.
//!
//! Server and client share this code. It neither parses requests nor chooses responses, and does
//! not depend on a runtime: blocking calls take a deadline and a flag that cancels them.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod digest; // digests of files, made and compared
pub mod incoming; // heads and bodies off a connection, not a byte too much
mod loopback; // what suits a connection within one machine
pub mod tls; // handshakes, and records in the kernel or here

pub use loopback::hold_little_on_loopback;
