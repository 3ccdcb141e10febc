//! Object stores: versitygw where it is installed, and one of our own that does what it is told.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

#[path = "../serve_origin/node.rs"]
mod node;
#[path = "../rig/mod.rs"]
mod rig;
#[path = "../serve_origin/scripted_origin.rs"]
mod scripted_origin;

mod doctor;
mod folders;
mod get;
mod keys;
mod put;
mod readme;
mod serve;
mod store;
