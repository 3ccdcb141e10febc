//! Settings for a connection within one machine.

use std::os::fd::AsFd;

use rustix::net::sockopt;
use underpass_engine::socket::has_loopback_peer;

/// Limits how much of an upload is in flight if its peer is on this machine, so that little has to
/// be sent again if the peer is killed. On other connections the limit would reduce the speed.
pub fn limit_loopback_buffer(stream: impl AsFd) {
    if has_loopback_peer(&stream) {
        // If the kernel refuses, more is in flight. It doubles the requested size.
        let _ = sockopt::set_socket_send_buffer_size(&stream, LOOPBACK_BUFFER / 2);
        let _ = sockopt::set_socket_recv_buffer_size(&stream, LOOPBACK_BUFFER / 2);
    }
}

/// The bytes of an upload within this machine that one end holds, including the kernel's overhead.
/// With the receiver's step of 256 KiB through its pipe and a packet, both ends hold less than 1 MiB.
const LOOPBACK_BUFFER: usize = 352 << 10;
