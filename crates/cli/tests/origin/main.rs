//! Nodes in front of an origin, object stores, and the state after a power cut.

#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

mod cache;
mod node;
mod power_cuts;
#[path = "../rig/mod.rs"]
mod rig;
mod s3;
mod scripted_origin;
