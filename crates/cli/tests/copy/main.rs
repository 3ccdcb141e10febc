//! `underpass cp`: by itself, and beside the system's own.

#![allow(clippy::unwrap_used)]

mod coreutils;
mod cp;
#[path = "../rig/mod.rs"]
mod rig;
mod users;
