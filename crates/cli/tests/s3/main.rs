//! Object stores: versitygw where it is installed, and one of our own that does what it is told.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

#[path = "../serve_origin/node.rs"]
mod node;
#[path = "../rig/mod.rs"]
mod rig;
#[path = "../serve_origin/wicked.rs"]
mod wicked;

mod doctor;
mod folders;
mod get;
mod keys;
mod put;
mod serve;
mod store;
