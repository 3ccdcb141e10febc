//! `underpass get`: files, folders, mirrors and faults.

#![allow(clippy::unwrap_used, missing_docs)]

mod faults;
mod file;
mod mirror;
#[path = "../rig/mod.rs"]
mod rig;
mod tree;
