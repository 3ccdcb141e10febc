//! Nodes in front of an origin, object stores, and what a power cut leaves.

#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

mod cache;
mod node;
mod power_cuts;
#[path = "../rig/mod.rs"]
mod rig;
mod s3;
mod scripted_origin;
