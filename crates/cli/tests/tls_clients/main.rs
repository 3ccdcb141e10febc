//! `get`, `put`, `send` and `recv` over TLS, with the programs that people have at the other end.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod fetch;
mod send;
mod site;
mod streams;
mod trust;

#[path = "../rig/mod.rs"]
mod rig;
