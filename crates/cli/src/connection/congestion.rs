//! The congestion control of a connection.
//!
//! An algorithm that paces costs ten times the sender's processor time on loopback, where there
//! is no congestion to control, so another one is used there unless the user names one.

use rustix::net::{AddressFamily, SocketType, socket};
use underpass_engine::socket::set_congestion;
use underpass_transport::stream::Stream;

use super::meet::StreamUsage;
use crate::failure::{Failure, Result};

/// Checks, before anything is opened or connected, whether the requested algorithm can be used.
pub(crate) fn check(requested: &str) -> Result<()> {
    if requested == "auto" {
        return Ok(());
    }
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None);
    let socket = socket
        .map_err(|errno| Failure::System { action: "creating a socket", source: errno.into() })?;
    set_congestion(socket, requested).map_err(StreamUsage::Congestion)?;
    Ok(())
}

/// Sets the requested algorithm, or a certainly better one, and returns the one in use; `None` for
/// a Unix stream.
pub(crate) fn choose(stream: &Stream, requested: &str) -> Result<Option<String>> {
    let Stream::Tcp(socket) = stream else { return Ok(None) };
    Ok(set_congestion(socket, requested).map_err(StreamUsage::Congestion)?)
}
