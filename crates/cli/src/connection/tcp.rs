//! TCP sockets that reset their connection when the process ends, from before it exists.
//!
//! A process can be killed at any moment. An option set after connect(2) or accept(2) is set too
//! late: the other end may have the connection already, and would take its end for that of an empty
//! stream.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use underpass_engine::socket::arm_reset;
use underpass_engine::wait::Limits;

/// Connects by an armed socket, trying each address of the host.
pub(super) fn connect_armed(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(Errno::HOSTUNREACH);
    for address in (host, port).to_socket_addrs()? {
        match connect_to(address) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    arm_reset(&socket)?;
    match connect(&socket, &address) {
        Err(Errno::INPROGRESS) => {
            let limits = Limits::since(Instant::now(), Some(CONNECT_TIMEOUT), None);
            limits.until_ready(&socket, PollFlags::OUT)?;
            sockopt::socket_error(&socket)??;
        }
        outcome => outcome?,
    }
    ioctl_fionbio(&socket, false)?;
    Ok(socket.into())
}

/// Listens by an armed socket: each that it accepts inherits that. An empty host stands for every
/// address.
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
