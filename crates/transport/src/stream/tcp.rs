//! TCP sockets whose connection is reset if the process ends, armed before the connection exists.
//!
//! A process can be killed at any moment. An option set after connect(2) or accept(2) is set too
//! late: the peer may already have the connection, and would treat its end as that of an empty
//! stream.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use underpass_engine::socket::arm_reset;
use underpass_engine::wait::Limits;

/// Connects an armed socket within `timeout`, trying each address of the host.
pub(super) fn connect_armed(
    host: &str,
    port: u16,
    timeout: Option<Duration>,
) -> io::Result<TcpStream> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
    connect_to_any(&addresses, deadline)
}

/// Connects to the first address that answers. They are tried in turn, not in parallel, because the
/// peer accepts a single connection. Each attempt leaves the remaining addresses their share of the
/// time.
fn connect_to_any(addresses: &[SocketAddr], deadline: Option<Instant>) -> io::Result<TcpStream> {
    let mut last = io::Error::from(Errno::HOSTUNREACH);
    for (address, untried) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let share = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            left / u32::try_from(untried).unwrap_or(u32::MAX)
        });
        match connect_to(address, share.unwrap_or(CONNECT_TIMEOUT).min(CONNECT_TIMEOUT)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to(address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    arm_reset(&socket)?;
    match connect(&socket, address) {
        Err(Errno::INPROGRESS) => {
            let limits = Limits::since(Instant::now(), Some(timeout), None);
            limits.until_ready(&socket, PollFlags::OUT)?;
            sockopt::socket_error(&socket)??;
        }
        outcome => outcome?,
    }
    ioctl_fionbio(&socket, false)?;
    Ok(socket.into())
}

/// Listens on an armed socket, from which accepted sockets inherit the option. An empty host stands
/// for every address.
pub(super) fn listen_armed(host: &str, port: u16) -> io::Result<TcpListener> {
    let listener = match host {
        "" => TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port))),
        host => TcpListener::bind((host, port)),
    }?;
    arm_reset(&listener)?;
    Ok(listener)
}

/// Enough for three lost SYNs: the kernel sends the next ones after 1, 3 and 7 seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        // A listener whose queue is full does not answer.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a listener");
        rustix::net::listen(&silent, 0).expect("a short queue");
        let dead = silent.local_addr().expect("its address");
        let _waiting: Vec<_> =
            (0..4).map(|_| connect_to(&dead, Duration::from_millis(1))).collect();
        let alive = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = alive.local_addr().expect("its address");
        let deadline = Instant::now() + Duration::from_secs(4);
        let stream = connect_to_any(&[dead, address], Some(deadline)).expect("a connection");
        assert_eq!(stream.peer_addr().expect("its peer"), address);
        assert!(Instant::now() < deadline);
    }
}
