//! Which congestion control suits a connection within one machine.

use std::net::{IpAddr, TcpStream};

use rustix::net::sockopt;

/// Takes an algorithm that does not pace on a connection within this machine, where there is no
/// congestion to control: one that does costs the sender ten times the processor time there.
pub(crate) fn avoid_pacing_on_loopback(stream: &TcpStream) {
    let is_loopback = stream.peer_addr().is_ok_and(|peer| is_loopback(peer.ip()));
    if is_loopback && sockopt::tcp_congestion(stream).is_ok_and(|name| name.starts_with("bbr")) {
        // Where neither is allowed the system's own is as right, only dearer.
        let _ = UNPACED.iter().find(|name| sockopt::set_tcp_congestion(stream, name).is_ok());
    }
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|it| it.is_loopback())
        }
    }
}

/// In the order of preference; every kernel has reno.
const UNPACED: [&str; 2] = ["cubic", "reno"];
