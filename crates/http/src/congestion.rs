//! What suits a connection within one machine, on which nothing is far away.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;

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

/// Lets little of an upload be on its way at once if its peer is within this machine, so that little
/// has to be sent again when the peer is killed. Elsewhere that would cost the speed.
pub(crate) fn hold_little_on_loopback(stream: impl AsFd) {
    let peer = rustix::net::getpeername(&stream).ok().flatten();
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    if peer.is_some_and(|peer| is_loopback(peer.ip())) {
        // A kernel that refuses only keeps more. It doubles what it is asked for.
        let _ = sockopt::set_socket_send_buffer_size(&stream, LITTLE / 2);
        let _ = sockopt::set_socket_recv_buffer_size(&stream, LITTLE / 2);
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

/// Bytes that one end holds of an upload that comes from within this machine, with all that the
/// kernel needs besides.
const LITTLE: usize = 512 << 10;

/// In the order of preference; every kernel has reno.
const UNPACED: [&str; 2] = ["cubic", "reno"];
