//! What an HTTP request for a file means, and a server that answers it underneath.
//!
//! The meaning is pure: a request head and the facts of a file make a plan, without reading a file
//! or a clock. Around it stands a thin shell that owns sockets, descriptors and time, and moves
//! every body by the engine.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod archive;
pub mod auth;
mod changes; // DELETE, MKCOL, MOVE and COPY
mod connection; // requests in, responses out
pub mod digest; // digests, made and kept
mod files; // the root, and what is open beneath it
pub mod listing;
mod observe;
mod routing; // from a request to its handler
pub mod server;
mod uploads; // PUT and PATCH

pub use observe::{access_log, metrics, transfers};

// What moved to the protocol is still found under its old name.
pub(crate) use underpass_protocol::request::{destination, negotiate, origin, target};
pub(crate) use underpass_protocol::response::{
    conditional, head, media, plan, resumption, validator,
};
pub(crate) use underpass_protocol::{chunked, request, upload};
pub(crate) use underpass_transport::{incoming, tls};
