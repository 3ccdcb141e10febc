//! The bytes of a connection: TLS, the heads and bodies that come in, and the digests they are checked by.
//!
//! Server and client use the same code on both sides. Nothing here parses a request or chooses an answer,
//! and nothing waits on a runtime: what blocks takes a deadline and a flag that cancels it.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod digest; // digests of files, made and compared
pub mod incoming; // heads and bodies off a connection, not a byte too much
mod loopback; // what suits a connection within one machine
pub mod tls; // handshakes, and records in the kernel or here

pub use loopback::hold_little_on_loopback;
