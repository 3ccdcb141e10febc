//! TCP and Unix sockets, as the runtime watches them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The interest for reading through TLS, which includes errors: if a kernel receives a malformed
/// record, it reports `EPOLLERR` alone, with neither data nor an end. The interest for writing
/// excludes errors, because it would consume those that reading would then never see.
pub(crate) const READABLE: Interest = Interest::READABLE.add(Interest::ERROR);

/// A connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Waits until an attempt to read ([`READABLE`]) or write (`WRITABLE`) is worthwhile.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.ready(interest).await,
            Self::Unix(socket) => socket.ready(interest).await,
        }?;
        Ok(())
    }

    /// Returns whether an attempt to read is worthwhile, and wakes the only task that reads when it
    /// becomes so. An idle connection stores only a waker for that.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_read_ready(context),
            Self::Unix(socket) => socket.poll_read_ready(context),
        }
    }

    /// Clears the readiness after an attempt without result, so that the runtime waits for the
    /// kernel to report it again.
    pub(crate) fn clear_ready(&self, interest: Interest) {
        let not_ready = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
        // Each has its own call: given several in one call, the runtime clears none.
        for part in [Interest::READABLE, Interest::WRITABLE, Interest::ERROR] {
            if part.remove(interest).is_some() {
                continue;
            }
            // The error is the one just passed in.
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

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Accepting {
    /// Registers a non-blocking listening socket with the runtime.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(match socket_domain(&socket)? {
            AddressFamily::UNIX => Self::Unix(UnixListener::from_std(socket.into())?),
            _ => Self::Tcp(TcpListener::from_std(socket.into())?),
        })
    }

    /// Accepts the next connection, with its address; `None` over a Unix socket.
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
