//! Which congestion control a connection uses.
//!
//! An algorithm that paces costs ten times the sender's processor time on loopback, where there
//! is no congestion to control, so another one is used there unless the user names one.

use std::fs;

use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use underpass_engine::socket::avoid_pacing_on_loopback;

use super::address::{Stream, StreamError};
use crate::failure::{Failure, Result};

/// Checks, before anything is opened or connected, whether the requested algorithm can be used.
pub(crate) fn check(requested: &str) -> Result<()> {
    if requested == "auto" {
        return Ok(());
    }
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None);
    let socket = socket
        .map_err(|errno| Failure::System { action: "creating a socket", source: errno.into() })?;
    sockopt::set_tcp_congestion(&socket, requested).map_err(|_| unknown(requested))
}

/// Sets the requested algorithm, or a better one if that is certain, and returns the one in use;
/// `None` for a unix stream.
pub(crate) fn choose(stream: &Stream, requested: &str) -> Result<Option<String>> {
    let Stream::Tcp(socket) = stream else { return Ok(None) };
    match requested {
        "auto" => avoid_pacing_on_loopback(socket),
        requested => {
            sockopt::set_tcp_congestion(socket, requested).map_err(|_| unknown(requested))?
        }
    }
    Ok(sockopt::tcp_congestion(socket).ok())
}

/// Returns the failure of one that this system does not have, or that may not be set.
fn unknown(requested: &str) -> Failure {
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let available = available.unwrap_or_default().trim().to_owned();
    StreamError::Congestion { requested: requested.to_owned(), available }.into()
}
