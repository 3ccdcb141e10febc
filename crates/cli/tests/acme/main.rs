//! Certificates from an authority: pebble issues them, and curl checks them.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod authority;
mod life;
#[path = "../rig/mod.rs"]
mod rig;
mod site;
mod sites;
mod wrong;
