//! Makes TCP connections.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use underpass_engine::wait::{Limits, POLL_INTERVAL};
use url::Url;

use crate::error::{ClientError, NetworkAction};

/// Connects to the server of a URL, or to the proxy on the way to it, trying its addresses in turn
/// until the time is over.
pub(super) fn connect(
    url: &Url,
    proxy: Option<&Url>,
    limits: Limits<'_>,
) -> Result<TcpStream, ClientError> {
    let address = match proxy {
        Some(proxy) => format!("the proxy {}", address(proxy)),
        None => address(url),
    };
    let url = proxy.unwrap_or(url);
    let fail = |action| {
        let address = address.clone();
        move |source: io::Error| match source.kind() {
            io::ErrorKind::Interrupted => ClientError::Cancelled,
            _ => ClientError::Network { action, address, source },
        }
    };
    let found = resolve(url, limits).map_err(fail(NetworkAction::LookingUp))?;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for (index, each) in found.iter().enumerate() {
        let left = limits.check().ok().flatten().unwrap_or(Duration::ZERO);
        // An address that does not answer must not use up the time of the next ones.
        let share = left / u32::try_from(found.len() - index).unwrap_or(u32::MAX);
        let deadline = Some(Instant::now() + share.max(MIN_SHARE));
        match reach(each, Limits { deadline, ..limits }) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(fail(NetworkAction::Connecting))?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Err(ClientError::Cancelled);
            }
            Err(error) => last = error,
        }
    }
    Err(fail(NetworkAction::Connecting)(last))
}

/// Returns host and port of a URL.
pub(super) fn address(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or(80);
    format!("{}:{port}", url.host_str().unwrap_or_default())
}

/// Resolves the name of a server.
fn resolve(url: &Url, limits: Limits<'_>) -> io::Result<Vec<SocketAddr>> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = url.port_or_known_default().unwrap_or(80);
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    // The resolver cannot be stopped, only abandoned.
    let (send, receive) = channel();
    let find = move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
    let finding = find.clone();
    let thread = std::thread::Builder::new().spawn(move || {
        // The caller may have given up.
        let _ = send.send(finding());
    });
    if thread.is_err() {
        // No more threads are allowed.
        return find();
    }
    loop {
        match receive.recv_timeout(limits.moment()?.unwrap_or(POLL_INTERVAL)) {
            Ok(found) => return found,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::Other.into()),
        }
    }
}

/// Connects a non-blocking socket to an address.
fn reach(address: &SocketAddr, limits: Limits<'_>) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, address) {
        Ok(()) => return Ok(socket.into()),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    limits.until_ready(&socket, PollFlags::OUT)?;
    socket_error(&socket)??;
    Ok(socket.into())
}

/// The minimum time for one address.
const MIN_SHARE: Duration = Duration::from_millis(100);
