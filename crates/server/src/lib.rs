//! An HTTP file server on top of the `underpass` protocol and engine crates.
//!
//! The meaning of a request is decided without side effects: a request head and the attributes of a
//! file give a plan, and no file or clock is read. A thin layer around it owns the sockets, the
//! descriptors and the time, and sends every body through the engine.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod archive;
pub mod auth;
mod changes; // DELETE, MKCOL, MOVE and COPY
mod connection; // requests in, responses out
pub mod digest; // digests, made and kept
mod files; // the root, and what is open beneath it
mod listing; // listings for requests
mod observe; // entries of the access log
mod routing; // from a request to its handler
pub mod server;
mod uploads; // PUT and PATCH

pub use underpass_observe::access_log;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
