//! A node in front of an origin: what clients get, what the origin is asked, and what happens when
//! it fails.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[path = "../rig/mod.rs"]
mod rig;

mod budget;
mod connecting;
mod extents;
mod fills;
mod freshness;
mod full_size;
mod node;
mod operating;
mod ranges;
mod redirects;
mod replies;
mod restarts;
mod scale;
mod scripted_origin;
mod sharing;
mod syncing;
mod usage;
mod validations;
mod versions;
mod wrong;
