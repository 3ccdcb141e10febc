//! Options of stream sockets: resets, acknowledgements, pacing, corking.

mod congestion;
pub(crate) mod peer;
pub(crate) mod tls_transport;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketType, netlink, sockopt};
use underpass_sys::Netlink;

pub use congestion::{
    CongestionUnavailable, UNPACED, avoid_pacing_on_loopback, paces, set_congestion,
};
pub use peer::owner_of_peer;

/// Makes closing the socket, by whatever means, reset the connection instead of ending it cleanly.
///
/// Set it before a transfer whose end its peer could not distinguish from an interruption, and undo
/// it with [`disarm_reset`] once all is sent: even a `SIGKILL` then resets the connection, and the
/// peer cannot mistake a part for the whole. Unix sockets have no reset; their peer sees an end.
///
/// # Errors
///
/// As setsockopt(2) for `SO_LINGER`, socket(7).
pub fn arm_reset(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Undoes [`arm_reset`].
///
/// # Errors
///
/// As setsockopt(2) for `SO_LINGER`.
pub fn disarm_reset(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, None)?)
}

/// Returns how many bytes were written to the socket that the peer's kernel has not acknowledged,
/// or, for a Unix socket, that the peer has not read.
///
/// At 0 the socket no longer references any page of a file. A TCP peer on the same machine shares
/// the pages until it has read them; an [`Integrity`](crate::Integrity) level takes that into
/// account.
///
/// # Errors
///
/// As ioctl(2) for `SIOCOUTQ`, tcp(7).
pub fn unacknowledged(socket: impl AsFd) -> io::Result<u64> {
    Ok(underpass_sys::unacknowledged(socket.as_fd())?)
}

/// Returns how many bytes were written to a TCP socket that it has not sent even once.
pub(crate) fn unsent(socket: impl AsFd) -> Result<u64, Errno> {
    underpass_sys::unsent(socket.as_fd())
}

/// Limits a socket to this many bytes per second, including packet headers.
///
/// The kernel paces what is sent, by any mechanism, without timers or buffers in the process. A
/// Unix socket accepts the rate and ignores it.
///
/// # Errors
///
/// As setsockopt(2) for `SO_MAX_PACING_RATE`, socket(7).
pub fn set_pacing_rate(socket: impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    Ok(underpass_sys::set_pacing_rate(socket.as_fd(), bytes_per_second)?)
}

/// Limits the bytes that a TCP socket buffers before sending them; `None` leaves only the limit of
/// its buffer.
///
/// A peer that reads nothing then costs no more than that plus its window. Accepted connections
/// inherit the limit of the listening socket.
///
/// # Errors
///
/// As setsockopt(2) for `TCP_NOTSENT_LOWAT`, tcp(7).
pub fn limit_unsent(socket: impl AsFd, bytes: Option<u32>) -> io::Result<()> {
    Ok(underpass_sys::set_unsent_limit(socket.as_fd(), bytes.unwrap_or(u32::MAX))?)
}

/// Returns whether this process may query how much peers on this machine have read (sock_diag(7)).
///
/// Seccomp filters, such as `RestrictAddressFamilies=` of a unit, may refuse that. Then an
/// acknowledgement of a peer's kernel has to suffice for every [`Integrity`](crate::Integrity)
/// level, although a peer on this machine reads the pages of the file later.
#[must_use]
pub fn sees_local_peers() -> bool {
    Netlink::open(Some(netlink::SOCK_DIAG)).is_ok()
}

/// Returns whether the peer of a TCP connection is reached over loopback.
#[must_use]
pub fn has_loopback_peer(socket: impl AsFd) -> bool {
    let peer = rustix::net::getpeername(socket).ok().flatten();
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
}

/// Refuses sockets that do not preserve the order of bytes.
pub(crate) fn require_stream(socket: impl AsFd) -> Result<(), Errno> {
    match sockopt::socket_type(socket)? {
        SocketType::STREAM => Ok(()),
        _ => Err(Errno::PROTOTYPE),
    }
}

/// Holds back partly filled segments until [`uncork`], and returns whether the socket can.
///
/// Only TCP can, and only TCP has a reason to.
pub(crate) fn cork(socket: impl AsFd) -> bool {
    sockopt::set_tcp_cork(socket, true).is_ok()
}

/// Sends what [`cork`] held back.
pub(crate) fn uncork(socket: impl AsFd) -> Result<(), Errno> {
    sockopt::set_tcp_cork(socket, false)
}

/// Returns the pending error of the connection, if any, and clears it.
pub(crate) fn pending_error(socket: impl AsFd) -> Option<Errno> {
    sockopt::socket_error(socket).ok().and_then(Result::err)
}
