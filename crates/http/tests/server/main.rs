//! What a user of the server can rely on, through real sockets: each test is a promise.

#![allow(clippy::unwrap_used, missing_docs)]

mod access;
mod archives;
mod bodies;
mod changes_copy;
mod changes_delete;
mod changes_headers;
mod changes_move;
mod changes_rights;
mod conditions;
mod connections;
mod digests;
mod endpoints;
mod integrity;
mod limits;
mod listeners;
mod listings;
mod log;
mod pages;
mod paths;
mod ranges;
mod redirects;
mod refusals;
mod replaced;
mod rig;
mod timeouts;
mod tls;
mod tls_handshakes;
mod tls_uploads;
mod uploads;
mod uploads_broken;
mod uploads_disks;
mod uploads_resumable;
mod uploads_told;
mod variants;
