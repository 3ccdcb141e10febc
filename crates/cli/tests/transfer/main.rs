//! `underpass send` and `underpass recv`, and faults and kills in the middle of any transfer.

#![allow(clippy::unwrap_used, missing_docs)]

mod ends;
mod faults;
mod fuse;
mod kills;
#[path = "../rig/mod.rs"]
mod rig;
mod send_recv;
