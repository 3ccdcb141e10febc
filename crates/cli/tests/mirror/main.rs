//! `--update` and what else keeps copies of a server's files: what moves, what is asked, and what
//! stays when something breaks.

#![allow(clippy::unwrap_used, missing_docs)]

mod file;
mod folders;
mod list;
mod origin;
mod peers;
#[path = "../rig/mod.rs"]
mod rig;
mod sources;
mod tree;
mod upload;
