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
mod authority; // hosts and ports
pub mod chunked; // request bodies in chunks
pub mod client; // asks other servers
pub mod conditional; // preconditions and If-Range
pub mod destination; // where MOVE and COPY go
pub mod digest; // digests, and the fields that say them
mod disposition; // Content-Disposition
mod framing; // where the body of a request ends
pub mod head; // heads of responses, and pages for errors
pub mod incoming; // heads and bodies off a connection, not a byte too much
mod link; // names in links
pub mod listing;
mod loopback; // what suits a connection within one machine
pub mod media; // media types by name
pub mod metrics;
pub mod multipart; // several ranges in one body
pub mod negotiate; // which form of a file the client likes best
pub mod origin; // whether a page of another site asks
pub mod plan; // (request, facts) → what to answer
pub mod range; // Range
pub mod request; // heads of requests
pub mod resumption; // which versions broken-off downloads were of
pub mod server;
pub mod target; // which path is meant
pub mod tls; // HTTPS: handshakes, and records in the kernel or here
pub mod transfers;
pub mod upload; // which part of which upload a body is
pub mod validator; // entity tags and dates
