//! Which congestion control a connection of the bench uses.

use std::fs;
use std::net::TcpStream;

use rustix::net::sockopt;
use underpass_engine::socket::avoid_pacing_on_loopback;

use crate::error::{BenchError, Result};

/// Sets the algorithm asked for, or a better one where that is certain, and names the one in use.
pub(crate) fn choose(socket: &TcpStream, asked: &str) -> Result<Option<String>> {
    match asked {
        "auto" => avoid_pacing_on_loopback(socket),
        asked => sockopt::set_tcp_congestion(socket, asked).map_err(|_| unknown(asked))?,
    }
    Ok(sockopt::tcp_congestion(socket).ok())
}

/// The error of one that this system does not have, or that may not be set.
pub(crate) fn unknown(asked: &str) -> BenchError {
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let available = available.unwrap_or_default();
    BenchError::Usage(format!(
        "congestion control '{asked}' is not to be had; this system allows: auto {}",
        available.trim()
    ))
}
