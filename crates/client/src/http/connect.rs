//! Establishes TCP connections.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use underpass_engine::wait::{Limits, WaitError, poll};
use underpass_transport::interruptible;
use url::Url;

use crate::error::{ClientError, ConnectionError, NetworkAction, ProxyError};

/// Connects to the server of a URL, or to its proxy, at the first of the addresses that answers.
pub(super) fn connect(
    url: &Url,
    proxy: Option<&Url>,
    limits: Limits<'_>,
) -> Result<TcpStream, ClientError> {
    if let Some(proxy) = proxy.filter(|proxy| proxy.scheme() != "http") {
        return Err(ProxyError::Scheme { scheme: proxy.scheme().to_owned() }.into());
    }
    let address = hop(url, proxy);
    let url = proxy.unwrap_or(url);
    let fail = |action| {
        let address = address.clone();
        move |source: io::Error| match source.kind() {
            io::ErrorKind::Interrupted => ClientError::Cancelled,
            _ => ConnectionError::Network { action, address, source }.into(),
        }
    };
    let found = resolve(url, limits).map_err(fail(NetworkAction::LookingUp))?;
    let stream =
        connect_first(&interleaved(found), limits).map_err(fail(NetworkAction::Connecting))?;
    stream.set_nodelay(true).map_err(fail(NetworkAction::Connecting))?;
    Ok(stream)
}

/// Returns host and port of a URL.
pub(super) fn address(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or(80);
    format!("{}:{port}", url.host_str().unwrap_or_default())
}

/// Returns host and port of the server of a URL or of its proxy, for messages.
pub(super) fn hop(url: &Url, proxy: Option<&Url>) -> String {
    match proxy {
        Some(proxy) => format!("the proxy {}", address(proxy)),
        None => address(url),
    }
}

/// Resolves the name of a server.
fn resolve(url: &Url, limits: Limits<'_>) -> io::Result<Vec<SocketAddr>> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = url.port_or_known_default().unwrap_or(80);
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    // The resolver cannot be stopped, only abandoned.
    interruptible(limits, move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))
}

/// Alternates between the addresses of both families, beginning with the first address (RFC 8305,
/// section 4): a family that does not work here delays the other by only one attempt.
fn interleaved(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let is_first_family = found.first().is_some_and(SocketAddr::is_ipv4);
    let (first, other): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|address| address.is_ipv4() == is_first_family);
    let (mut first, mut other) = (first.into_iter(), other.into_iter());
    let mut both = Vec::new();
    loop {
        let len = both.len();
        both.extend(first.next().into_iter().chain(other.next()));
        if both.len() == len {
            return both;
        }
    }
}

/// Connects to the first address that answers. The next one is tried once an attempt has failed, or
/// none has succeeded for [`ATTEMPT_DELAY`]; earlier attempts may still succeed (RFC 8305, section
/// 5). The stream is non-blocking.
fn connect_first(addresses: &[SocketAddr], limits: Limits<'_>) -> io::Result<TcpStream> {
    let mut untried = addresses.iter();
    let mut attempts: Vec<OwnedFd> = Vec::new();
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    let mut next_at = Instant::now();
    loop {
        if attempts.is_empty() || Instant::now() >= next_at {
            match untried.next().map(begin) {
                Some(Ok(socket)) => {
                    attempts.push(socket);
                    next_at = Instant::now() + ATTEMPT_DELAY;
                }
                Some(Err(error)) => {
                    last = error;
                    continue;
                }
                None if attempts.is_empty() => return Err(last),
                None => {}
            }
        }
        let mut waiting: Vec<_> =
            attempts.iter().map(|socket| PollFd::new(socket, PollFlags::OUT)).collect();
        let until_next = (!untried.as_slice().is_empty()).then_some(next_at);
        let moment = limits.no_later_than(until_next).moment();
        match moment {
            Ok(moment) => poll(&mut waiting, moment),
            // It is time for the next attempt.
            Err(WaitError::TimedOut) => {
                limits.check()?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let ready: Vec<_> = waiting.iter().map(|end| !end.revents().is_empty()).collect();
        for index in (0..ready.len()).rev().filter(|&index| ready[index]) {
            let socket = attempts.remove(index);
            match socket_error(&socket)? {
                Ok(()) => return Ok(socket.into()),
                Err(errno) => {
                    last = errno.into();
                    next_at = Instant::now();
                }
            }
        }
    }
}

/// Starts connecting a non-blocking socket to an address.
fn begin(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(errno) => Err(errno.into()),
    }
}

/// The time after which the next address is tried in parallel, as RFC 8305 section 5, recommends.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn limits() -> Limits<'static> {
        Limits::since(Instant::now(), Some(Duration::from_secs(5)), None)
    }

    /// A listener that accepts no further connection, because its queue is full.
    fn silent() -> (TcpListener, Vec<OwnedFd>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = (0..4).map(|_| begin(&address).unwrap()).collect();
        (listener, waiting, address)
    }

    #[test]
    fn an_address_that_does_not_answer_delays_the_next_one_for_a_moment() {
        let (_silent, _waiting, dead) = silent();
        let alive = TcpListener::bind("127.0.0.1:0").unwrap();
        let alive = alive.local_addr().map(|address| (alive, address)).unwrap();
        let begun = Instant::now();
        let stream = connect_first(&[dead, dead, alive.1], limits()).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), alive.1);
        assert!(begun.elapsed() >= 2 * ATTEMPT_DELAY);
    }

    #[test]
    fn an_address_that_refuses_delays_nothing_and_its_error_is_reported() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let alive = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = alive.local_addr().unwrap();
        let stream = connect_first(&[closed, closed, address], limits()).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
        let error = connect_first(&[closed, closed], limits()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn an_address_that_does_not_answer_takes_all_of_the_time_and_no_more() {
        let (_silent, _waiting, dead) = silent();
        let limits = Limits::since(Instant::now(), Some(Duration::from_millis(600)), None);
        let error = connect_first(&[dead, dead], limits).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn address_families_alternate() {
        let parse = |text: &str| text.parse::<SocketAddr>().unwrap();
        let six = ["[::1]:1", "[::2]:1", "[::3]:1"].map(parse);
        let four = ["127.0.0.1:1"].map(parse);
        let found = six.into_iter().chain(four).collect();
        assert_eq!(interleaved(found), [six[0], four[0], six[1], six[2]]);
    }
}
