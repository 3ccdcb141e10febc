//! The congestion control of connections.

use std::fmt;
use std::fs;
use std::os::fd::AsFd;

use rustix::net::sockopt;

use super::has_loopback_peer;

/// The requested congestion control does not exist on this system, or may not be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionUnavailable {
    requested: String,
    allowed: String,
}

impl CongestionUnavailable {
    /// Creates the error for the requested name, listing the names that the system allows.
    #[must_use]
    pub fn new(requested: &str) -> Self {
        let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
        let allowed = allowed.unwrap_or_default().trim().to_owned();
        Self { requested: requested.to_owned(), allowed }
    }
}

impl fmt::Display for CongestionUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, allowed } = self;
        write!(
            f,
            "congestion control '{requested}' is not available; this system allows: auto {allowed}"
        )
    }
}

impl std::error::Error for CongestionUnavailable {}

/// Sets the congestion control of a TCP socket and returns the one in use, if known. `auto` keeps
/// the system's default, except one that paces over loopback: see [`avoid_pacing_on_loopback`].
///
/// # Errors
///
/// [`CongestionUnavailable`] if the kernel refuses it.
pub fn set_congestion(
    socket: impl AsFd,
    requested: &str,
) -> Result<Option<String>, CongestionUnavailable> {
    match requested {
        "auto" => avoid_pacing_on_loopback(&socket),
        requested => sockopt::set_tcp_congestion(&socket, requested)
            .map_err(|_| CongestionUnavailable::new(requested))?,
    }
    Ok(sockopt::tcp_congestion(&socket).ok())
}

/// Replaces a congestion control that paces on a connection over loopback, which has no congestion
/// to control: pacing costs the sender ten times the processor time there.
pub fn avoid_pacing_on_loopback(socket: impl AsFd) {
    if has_loopback_peer(&socket) && sockopt::tcp_congestion(&socket).is_ok_and(|name| paces(&name))
    {
        // Where neither is allowed, the default works too, at a higher cost.
        let _ = UNPACED.iter().find(|name| sockopt::set_tcp_congestion(&socket, name).is_ok());
    }
}

/// Returns whether the congestion control of this name paces its connections.
#[must_use]
pub fn paces(name: &str) -> bool {
    name.starts_with("bbr")
}

/// Congestion controls without pacing, in order of preference; every kernel has reno.
pub const UNPACED: [&str; 2] = ["cubic", "reno"];
