//! TLS of the server and of the clients, and certificates from a certificate authority.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod acme;
mod clients;
#[path = "../rig/mod.rs"]
mod rig;
mod serve;
