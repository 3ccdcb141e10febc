//! Makes TCP connections.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use url::Url;

use crate::client::error::ClientError;

/// The limits of making a connection.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    pub(super) deadline: Instant,
    pub(super) cancel: Option<&'a AtomicBool>,
}

/// Connects to the server of a URL, trying its addresses in turn until the time is over.
pub(super) fn connect(url: &Url, limits: Limits<'_>) -> Result<TcpStream, ClientError> {
    let address = address(url);
    let fail = |action| {
        let address = address.clone();
        move |source: io::Error| match source.kind() {
            io::ErrorKind::Interrupted => ClientError::Cancelled,
            _ => ClientError::Network { action, address, source },
        }
    };
    let found = look_up(url, limits).map_err(fail("looking up"))?;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for (index, each) in found.iter().enumerate() {
        let left = limits.deadline.saturating_duration_since(Instant::now());
        // One that does not answer must not use up the time of those behind it.
        let share = left / u32::try_from(found.len() - index).unwrap_or(u32::MAX);
        let deadline = Instant::now() + share.max(MIN_SHARE);
        match reach(each, Limits { deadline, ..limits }) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(fail("connecting to"))?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Err(ClientError::Cancelled);
            }
            Err(error) => last = error,
        }
    }
    Err(fail("connecting to")(last))
}

/// Returns host and port of a URL.
pub(super) fn address(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or(80);
    format!("{}:{port}", url.host_str().unwrap_or_default())
}

/// Resolves the name of a server.
fn look_up(url: &Url, limits: Limits<'_>) -> io::Result<Vec<SocketAddr>> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = url.port_or_known_default().unwrap_or(80);
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    // The resolver cannot be told to stop, only be left behind.
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Nobody may be left who wants to know.
        let _ = send.send(found);
    });
    loop {
        let left = limits.check()?;
        match receive.recv_timeout(left.min(POLL_INTERVAL)) {
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
    loop {
        let moment = limits.check()?.min(POLL_INTERVAL);
        let moment = Timespec::try_from(moment).ok();
        let mut end = [PollFd::new(&socket, PollFlags::OUT)];
        // An interruption is as good as a timeout: the next look tells more.
        if poll(&mut end, moment.as_ref()).is_ok_and(|ready| ready > 0) {
            socket_error(&socket)??;
            return Ok(socket.into());
        }
    }
}

impl<'a> Limits<'a> {
    /// Creates limits that begin now.
    pub(super) fn new(timeout: Duration, cancel: Option<&'a AtomicBool>) -> Self {
        Self { deadline: Instant::now() + timeout, cancel }
    }

    /// Returns the time that is left; `Interrupted` if the request was cancelled.
    pub(super) fn check(&self) -> io::Result<Duration> {
        if self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Errno::TIMEDOUT.into()) } else { Ok(left) }
    }
}

/// The minimum time for one address.
const MIN_SHARE: Duration = Duration::from_millis(100);

/// How often a wait checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
