//! Plain streams between two processes: TCP or Unix sockets, connecting or listening.
//!
//! The end of such a stream is its only sign of completeness, so a sender that aborts resets it,
//! even if it is killed.

mod delivery;
mod tcp;
mod unix_marks;
mod unix_reset;

use std::fmt;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use underpass_engine::wait::Limits;

use crate::interruptible;

pub use delivery::{Outgoing, acknowledge, expect_end};
pub use unix_marks::is_abandoned;
pub use unix_reset::expect_confirmation;

/// The address of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamAddress {
    /// `HOST:PORT`, `[IPV6]:PORT`; an empty host stands for every address of this machine.
    Tcp {
        /// The host's name or IP address, without brackets.
        host: String,
        /// 0 lets the kernel choose when listening.
        port: u16,
    },
    /// `unix:PATH`.
    Unix(PathBuf),
}

/// The text is not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("addresses are HOST:PORT, [IPV6]:PORT or unix:PATH; to listen everywhere, :PORT")]
pub struct NotAnAddress;

impl FromStr for StreamAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(NotAnAddress) } else { Ok(Self::Unix(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or(NotAnAddress)?;
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        if host.contains(':') && !is_bracketed {
            return Err(NotAnAddress);
        }
        let host = if is_bracketed { &host[1..host.len() - 1] } else { host };
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|_| is_number).ok_or(NotAnAddress)?;
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for StreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl StreamAddress {
    /// Connects within `timeout` and until `cancel` is set, trying each address of the host. Until
    /// [`disarm_reset`](underpass_engine::socket::disarm_reset), closing the stream resets it, even
    /// by a SIGKILL.
    ///
    /// # Errors
    ///
    /// As [`interruptible()`] and connect(2).
    pub fn connect(&self, timeout: Option<Duration>, cancel: &AtomicBool) -> io::Result<Stream> {
        let limits = Limits::since(Instant::now(), timeout, Some(cancel));
        match self.clone() {
            // connect(2) waits while the listener's queue is full.
            Self::Unix(path) => {
                interruptible(limits, move || unix_marks::connect(&path).map(Stream::Unix))
            }
            Self::Tcp { host, port } => {
                let connect = move || tcp::connect_armed(&host, port, timeout).map(Stream::Tcp);
                interruptible(limits, connect)
            }
        }
    }

    /// Listens; accepted streams behave as those of [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// As bind(2).
    pub fn listen(&self) -> io::Result<BoundListener> {
        match self {
            Self::Unix(path) => listen_unix(path),
            Self::Tcp { host, port } => tcp::listen_armed(host, *port).map(BoundListener::Tcp),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// A Unix socket on this machine.
    Unix(UnixStream),
}

impl Stream {
    /// Announces that nothing more will be sent.
    fn finish(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.shutdown(std::net::Shutdown::Write),
            Self::Unix(socket) => socket.shutdown(std::net::Shutdown::Write),
        }
    }

    /// Returns the peer's address for messages.
    #[must_use]
    pub fn peer(&self) -> String {
        match self {
            Self::Tcp(socket) => {
                socket.peer_addr().map_or_else(|_| "the peer".to_owned(), |peer| peer.to_string())
            }
            Self::Unix(_) => "the Unix peer".to_owned(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

/// A listener for peers.
#[derive(Debug)]
pub enum BoundListener {
    /// Over TCP.
    Tcp(TcpListener),
    /// A Unix socket on this machine; its path is removed with the listener.
    Unix(UnixListener, PathBuf),
}

impl BoundListener {
    /// Returns the address to connect to.
    #[must_use]
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|error| error.to_string(), |at| at.to_string())
            }
            Self::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// Waits for one peer, no longer than `timeout` and until `cancel` becomes true.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, `EINTR`, and as accept(2).
    pub fn accept(&self, timeout: Option<Duration>, cancel: &AtomicBool) -> io::Result<Stream> {
        let limits = Limits::since(Instant::now(), timeout, Some(cancel));
        limits.until_ready(self, PollFlags::IN)?;
        match self {
            Self::Tcp(listener) => listener.accept().map(|(peer, _)| Stream::Tcp(peer)),
            Self::Unix(listener, _) => listener.accept().map(|(peer, _)| Stream::Unix(peer)),
        }
    }
}

impl AsFd for BoundListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for BoundListener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Another process may have removed it already; other errors cannot be handled here.
            let _ = fs::remove_file(path);
        }
    }
}

/// Binds the path; the socket of a killed program is replaced.
fn listen_unix(path: &Path) -> io::Result<BoundListener> {
    if is_abandoned(path) {
        fs::remove_file(path)?;
    }
    Ok(BoundListener::Unix(unix_marks::listen(path)?, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_as_they_are_typed() {
        for text in ["localhost:80", "127.0.0.1:0", "[::1]:9000", ":9000", "unix:/run/a:b"] {
            assert_eq!(text.parse::<StreamAddress>().map(|a| a.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn malformed_stream_addresses_are_refused() {
        for text in ["", "host", "9000", "::1:80", "host:", "host:65536", "host:+1", "unix:"] {
            assert_eq!(text.parse::<StreamAddress>(), Err(NotAnAddress), "{text}");
        }
    }
}
