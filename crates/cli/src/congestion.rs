//! Which congestion control a connection uses.
//!
//! An algorithm that paces costs ten times the sender's processor time on loopback, where there
//! is no congestion to control, so there another one is taken unless the user names one.

use std::fs;
use std::net::IpAddr;

use rustix::net::sockopt;

use crate::address::Stream;
use crate::failure::{Failure, Result};

/// Sets the algorithm asked for, or a better one where that is certain, and names the one in use;
/// `None` for a unix stream.
pub(crate) fn choose(stream: &Stream, asked: &str) -> Result<Option<String>> {
    let Stream::Tcp(socket) = stream else { return Ok(None) };
    let is_loopback = socket.peer_addr().is_ok_and(|peer| is_loopback(peer.ip()));
    if asked != "auto" {
        sockopt::set_tcp_congestion(socket, asked).map_err(|_| unknown(asked))?;
    } else if is_loopback && sockopt::tcp_congestion(socket).is_ok_and(|name| paces(&name)) {
        // Where neither is allowed the system's own is as right, only dearer.
        let _ = UNPACED.iter().find(|name| sockopt::set_tcp_congestion(socket, name).is_ok());
    }
    Ok(sockopt::tcp_congestion(socket).ok())
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => mapped.is_loopback(),
            None => address.is_loopback(),
        },
    }
}

/// Whether an algorithm holds its connections back by a clock.
pub(crate) fn paces(name: &str) -> bool {
    name.starts_with("bbr")
}

/// The failure of one that this system does not have, or that may not be set.
pub(crate) fn unknown(asked: &str) -> Failure {
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let available = available.unwrap_or_default();
    Failure::Usage(format!(
        "congestion control '{asked}' is not to be had; this system allows: auto {}",
        available.trim()
    ))
}

/// In the order of preference; every kernel has reno.
pub(crate) const UNPACED: [&str; 2] = ["cubic", "reno"];
