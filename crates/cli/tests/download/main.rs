//! `underpass get`: files, folders, mirrors and faults.

#![allow(clippy::unwrap_used, missing_docs)]

mod faults;
mod file;
mod mirror;
mod proxies;
#[path = "../rig/mod.rs"]
mod rig;
mod tree;
