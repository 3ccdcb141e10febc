//! Sockets of either family as the runtime watches them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// What to wait for before reading: errors too. That of a record which is none comes from a kernel
/// that does TLS as `EPOLLERR` alone, with nothing to read and no end.
/// Not so for writing, which would take note of errors that reading then waits for in vain.
pub(crate) const READABLE: Interest = Interest::READABLE.add(Interest::ERROR);

/// A connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Waits until it is worth a try: [`READABLE`], or `WRITABLE` of the runtime.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.ready(interest).await,
            Self::Unix(socket) => socket.ready(interest).await,
        }?;
        Ok(())
    }

    /// Tells the runtime that a try came to nothing, so that it waits for the kernel to say when
    /// the next is worth it.
    pub(crate) fn is_not_ready(&self, interest: Interest) {
        let not_ready = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
        // One by one: of several in one call the runtime takes note of none.
        for part in [Interest::READABLE, Interest::WRITABLE, Interest::ERROR] {
            if part.remove(interest).is_some() {
                continue;
            }
            // The answer is the one just given.
            let _ = match self {
                Self::Tcp(socket) => socket.try_io(part, not_ready),
                Self::Unix(socket) => socket.try_io(part, not_ready),
            };
        }
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
pub(crate) enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Accepting {
    /// Has the runtime watch a socket that listens and does not block.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(match socket_domain(&socket)? {
            AddressFamily::UNIX => Self::Unix(UnixListener::from_std(socket.into())?),
            _ => Self::Tcp(TcpListener::from_std(socket.into())?),
        })
    }

    /// The next connection, and where it comes from; `None` over a unix socket.
    pub(crate) async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
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
