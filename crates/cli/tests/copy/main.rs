//! `underpass cp`: by itself, and compared with the system's.

#![allow(clippy::unwrap_used)]

mod coreutils;
mod cp;
#[path = "../rig/mod.rs"]
mod rig;
mod users;
