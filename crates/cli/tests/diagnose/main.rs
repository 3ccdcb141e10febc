//! `underpass doctor` and `underpass explain` on this machine.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod doctor;
#[cfg(feature = "explain")]
mod explain;
#[path = "../rig/mod.rs"]
mod rig;
