//! What suits a connection within one machine, on which nothing is far away.

use std::os::fd::AsFd;

use rustix::net::sockopt;
use underpass_engine::socket::has_loopback_peer;

/// Lets little of an upload be on its way at once if its peer is within this machine, so that little
/// has to be sent again when the peer is killed. Elsewhere that would cost the speed.
pub fn hold_little_on_loopback(stream: impl AsFd) {
    if has_loopback_peer(&stream) {
        // A kernel that refuses only keeps more. It doubles what it is asked for.
        let _ = sockopt::set_socket_send_buffer_size(&stream, LITTLE / 2);
        let _ = sockopt::set_socket_recv_buffer_size(&stream, LITTLE / 2);
    }
}

/// Bytes that one end holds of an upload that comes from within this machine, with all that the
/// kernel needs besides.
const LITTLE: usize = 512 << 10;
