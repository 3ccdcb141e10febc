//! What `underpass explain` says of real programs: checked against the bytes that they moved, against
//! strace on a second run, and against what underpass says of itself.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod against_strace;
mod confined;
mod ends;
mod own;
mod peers;
#[path = "../rig/mod.rs"]
mod rig;
mod scene;
mod ways;
