//! `underpass serve` and `underpass share`: options, sites, rights, faults and anonymous clients.

#![allow(clippy::unwrap_used)]

mod access;
mod deep_trees;
mod digests;
mod faults;
mod leases;
#[path = "../rig/mod.rs"]
mod rig;
mod sandbox;
mod share;
mod sites;
mod strangers;
mod uploads;

// It describes the whole program.
#[cfg(all(feature = "bench", feature = "explain"))]
mod cli;
