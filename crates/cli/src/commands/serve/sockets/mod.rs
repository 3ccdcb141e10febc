//! The sockets of a server: addresses to listen on, and sockets that systemd has opened.

mod activation;
mod listen;
mod reachable;

pub(super) use activation::inherited;
pub(super) use listen::{addresses, check};
pub(super) use reachable::Reachable;

/// Returns the addresses for other devices of a server at these, at most as many as are printed.
pub(super) fn reachable(bound: &[String]) -> Vec<Reachable> {
    let bound = bound.iter().filter_map(|address| address.parse().ok());
    bound.flat_map(reachable::reachable).take(reachable::MAX).collect()
}
