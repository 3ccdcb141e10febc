//! `underpass put`.

#![allow(clippy::unwrap_used)]

mod faults;
mod file;
mod folders;
mod links;
#[path = "../rig/mod.rs"]
mod rig;
