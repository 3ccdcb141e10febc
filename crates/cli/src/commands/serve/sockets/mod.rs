//! The sockets of a server: addresses to listen on, and sockets that systemd has opened.

mod activation;
mod listen;

use underpass_transport::{ReachableAddress, reachable_addresses};

pub(super) use activation::inherited;
pub(super) use listen::{addresses, check};

/// Returns the addresses for other devices of a server at these, at most as many as are printed.
pub(super) fn reachable(bound: &[String]) -> Vec<ReachableAddress> {
    let bound = bound.iter().filter_map(|address| address.parse().ok());
    bound.flat_map(reachable_addresses).take(MAX_REACHABLE).collect()
}

/// The maximum number of addresses for other devices; machines with many containers have hundreds.
const MAX_REACHABLE: usize = 8;
