//! The peer on this machine: bytes that it has received but not read yet, and its user.
//!
//! Between two programs on one machine, bytes are not transmitted: the pages of a file wait by
//! reference in the pipe, or in the receive queue of the peer's socket, although TCP has
//! acknowledged them. A write to the file still changes what the peer is going to read.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{getpeername, getsockname, netlink};
use underpass_sys::{Netlink, leading_u32};

/// Returns how many bytes wait in a pipe.
pub(crate) fn unread_in_pipe(pipe: BorrowedFd<'_>) -> u64 {
    ioctl_fionread(pipe).unwrap_or(0)
}

/// Returns whether a pipe has no reader left.
pub(crate) fn has_left_pipe(pipe: BorrowedFd<'_>) -> bool {
    let mut ends = [PollFd::from_borrowed_fd(pipe, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let _ = poll(&mut ends, Some(&now));
    ends[0].revents().contains(PollFlags::ERR)
}

/// Returns how many bytes wait to be read by the peer of a TCP connection, if its socket is on this
/// machine and in this network namespace; otherwise 0.
///
/// Where the kernel lacks or refuses sock_diag(7), the acknowledgement has to suffice. The netlink
/// socket is opened when it is first needed, and kept for the next request.
pub(crate) fn unread_by_tcp_peer(socket: BorrowedFd<'_>, netlink: &mut Option<Netlink>) -> u64 {
    let Some((ours, theirs)) = addresses(socket) else { return 0 };
    let answer = query(&request(theirs, ours), netlink);
    answer.ok().and_then(|answer| number_at(&answer, UNREAD_AT)).map_or(0, u64::from)
}

/// Returns the user who owns the peer's socket on this machine and in this network namespace;
/// `None` if no program has such a socket, or the kernel does not tell.
#[must_use]
pub fn owner_of_peer(socket: impl AsFd) -> Option<u32> {
    let socket = socket.as_fd();
    let Some((ours, theirs)) = addresses(socket) else {
        return Some(socket_peercred(socket).ok()?.uid.as_raw());
    };
    let answer = query(&request(theirs, ours), &mut None).ok()?;
    // The kernel reports root as the owner of a socket that no program has open any more.
    number_at(&answer, INODE_AT).filter(|inode| *inode != 0)?;
    number_at(&answer, OWNER_AT)
}

/// Returns both ends of a connection over IP.
fn addresses(socket: BorrowedFd<'_>) -> Option<(SocketAddr, SocketAddr)> {
    let ours = SocketAddr::try_from(getsockname(socket).ok()?).ok()?;
    let theirs = SocketAddr::try_from(getpeername(socket).ok()??).ok()?;
    Some((ours, theirs))
}

/// Builds the request (`inet_diag_req_v2`) for the socket whose own address is `local`.
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.ip().to_canonical().is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut request = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    request.extend(u32::MAX.to_ne_bytes()); // in whatever state
    request.extend(local.port().to_be_bytes());
    request.extend(remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        match address.to_canonical() {
            IpAddr::V4(address) => request.extend([&address.octets()[..], &[0; 12]].concat()),
            IpAddr::V6(address) => request.extend(address.octets()),
        }
    }
    request.extend(0u32.to_ne_bytes()); // over any interface
    request.extend([0xff; 8]); // no cookie
    request
}

/// Returns the kernel's answer (`inet_diag_msg`) about the requested socket.
fn query(request: &[u8], kept: &mut Option<Netlink>) -> Result<Vec<u8>, Errno> {
    let netlink = match kept.take() {
        Some(netlink) => netlink,
        None => Netlink::open(Some(netlink::SOCK_DIAG))?,
    };
    let answer = netlink.query(SOCK_DIAG_BY_FAMILY, request, MAX_ANSWER);
    // Kept only after an answer, so that no stale answer is left for the next request. "No such
    // socket" is an answer.
    if matches!(answer, Ok(_) | Err(Errno::NOENT)) {
        *kept = Some(netlink);
    }
    let answer = answer?;
    // If no connection exists, the kernel finds a listening socket, whose queue counts connections
    // instead of bytes.
    if answer.get(STATE_AT) == Some(&LISTEN) {
        return Err(Errno::NOENT);
    }
    Ok(answer)
}

fn number_at(answer: &[u8], at: usize) -> Option<u32> {
    answer.get(at..).and_then(leading_u32)
}

/// The room for the answer about one socket, in bytes.
const MAX_ANSWER: usize = 1 << 10;

/// From linux/sock_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// `idiag_state` of `inet_diag_msg` of linux/inet_diag.h.
const STATE_AT: usize = 1;

/// `idiag_rqueue` of `inet_diag_msg`.
const UNREAD_AT: usize = 56;

/// `idiag_uid` of `inet_diag_msg`.
const OWNER_AT: usize = 64;

/// `idiag_inode` of `inet_diag_msg`.
const INODE_AT: usize = 68;

/// `TCP_LISTEN` of netinet/tcp.h.
const LISTEN: u8 = 10;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn bytes_that_a_local_peer_has_not_read_are_counted() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            // A machine without IPv6 has nothing to count there.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut reader = listener.accept().unwrap().0;
            let mut netlink = None;
            assert_eq!(unread_by_tcp_peer(sender.as_fd(), &mut netlink), 0, "{address}");
            sender.write_all(&[1; 1000]).unwrap();
            reader.read_exact(&mut [0; 400]).unwrap();
            // The second request reuses the netlink socket of the first.
            assert!(netlink.is_some(), "{address}");
            assert_eq!(unread_by_tcp_peer(sender.as_fd(), &mut netlink), 600, "{address}");
            let nowhere = request("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
            assert_eq!(query(&nowhere, &mut netlink).err(), Some(Errno::NOENT));
            assert_eq!(unread_by_tcp_peer(sender.as_fd(), &mut netlink), 600, "{address}");
        }
    }

    #[test]
    fn the_owner_of_a_peer_is_known_while_a_program_has_it() {
        let own = rustix::process::geteuid().as_raw();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        assert_eq!(owner_of_peer(&server), Some(own));
        drop(client);
        assert_eq!(owner_of_peer(&server), None);
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(owner_of_peer(&one), Some(own));
    }

    #[test]
    fn unread_bytes_of_a_pipe_are_counted() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&[1; 1000]).unwrap();
        reader.read_exact(&mut [0; 400]).unwrap();
        assert_eq!(unread_in_pipe(writer.as_fd()), 600);
        assert!(!has_left_pipe(writer.as_fd()));
        drop(reader);
        assert!(has_left_pipe(writer.as_fd()));
    }
}
