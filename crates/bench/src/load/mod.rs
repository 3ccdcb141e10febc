//! Servers and their load. `server_kind` has the servers and their configurations, `server` starts
//! and ends them, `usage` reads what they cost; `generator` is the load, `client` a single client
//! that waits, `connection` the connections of both, with `responses` and `drop_behind` as pure
//! parts. `fixture` has everything that a sample with a server needs.

mod caches;
mod client;
mod connection;
mod drop_behind;
mod fixture;
mod generator;
mod responses;
mod server;
mod server_kind;
mod usage;

pub(crate) use caches::{CACHE, CacheSetup, CountingOrigin};
pub(crate) use client::Host;
pub(crate) use connection::{LoadConnection, accept_any_certificate};
pub(crate) use fixture::{
    LoadWindow, ResourceUse, SPARE_FILES, ServerFixture, StreamedFiles, during,
};
pub(crate) use generator::{Class, Latencies, LoadGenerator, RequestSpec};
pub(crate) use responses::{ResponseFault, require_status};
pub(crate) use server::{RunningServer, ServedSite, free_port};
pub(crate) use server_kind::{DUFS, NGINX, NGINX_DAV, ServerKind, ServerProgram};
pub(crate) use usage::{ServerUsage, peak};
