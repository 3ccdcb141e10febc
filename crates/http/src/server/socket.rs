//! Sockets of either family as the runtime watches them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A connection.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Waits until there is something to read, or the end.
    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.readable().await,
            Self::Unix(socket) => socket.readable().await,
        }
    }

    /// Waits until the socket takes more.
    pub(super) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.writable().await,
            Self::Unix(socket) => socket.writable().await,
        }
    }

    /// Tells the runtime that the socket is not ready for this, so that it waits for the kernel to
    /// say when it is.
    pub(super) fn is_not_ready(&self, interest: Interest) {
        let not_ready = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
        // The answer is the one just given.
        let _ = match self {
            Self::Tcp(socket) => socket.try_io(interest, not_ready),
            Self::Unix(socket) => socket.try_io(interest, not_ready),
        };
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

/// A socket that connections come to.
#[derive(Debug)]
pub(super) enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Accepting {
    /// Has the runtime watch a socket that listens and does not block.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(match socket_domain(&socket)? {
            AddressFamily::UNIX => Self::Unix(UnixListener::from_std(socket.into())?),
            _ => Self::Tcp(TcpListener::from_std(socket.into())?),
        })
    }

    /// The next connection, and where it comes from; `None` over a unix socket.
    pub(super) async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        match self {
            Self::Tcp(socket) => {
                let (socket, from) = socket.accept().await?;
                let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                Ok((Socket::Tcp(socket), Some(from)))
            }
            Self::Unix(socket) => Ok((Socket::Unix(socket.accept().await?.0), None)),
        }
    }
}
