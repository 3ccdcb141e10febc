//! What an HTTP request for a file means, and a server that answers it underneath.
//!
//! The meaning is pure: a request head and the facts of a file make a plan, without reading a file
//! or a clock. Around it stands a thin shell that owns sockets, descriptors and time, and moves
//! every body by the engine.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod access_log;
pub mod archive;
pub mod auth;
pub mod client; // asks other servers
pub mod digest; // digests, and the fields that say them
mod error_page; // for people
pub mod incoming; // heads and bodies off a connection, not a byte too much
pub mod listing;
mod loopback; // what suits a connection within one machine
pub mod metrics;
pub mod server;
pub mod tls; // HTTPS: handshakes, and records in the kernel or here
pub mod transfers;
mod version; // of files, for the engine and for the protocol

// What moved to the protocol is still found under its old name.
pub(crate) use underpass_protocol::request::{destination, negotiate, origin, target};
pub(crate) use underpass_protocol::response::{
    conditional, head, media, plan, resumption, validator,
};
pub(crate) use underpass_protocol::{chunked, request, upload};
