//! A client that waits for each response: for what does not depend on the number of clients.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with, sockopt,
};
use sha2::{Digest, Sha256};

use super::connection::{LoadConnection, MAX_WAIT, Tls};
use super::responses::{ResponseFault, Responses};
use crate::run::hex;

/// The server as clients see it, and how they connect.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) address: SocketAddrV4,
    pub(crate) congestion: String,
    pub(crate) tls: Option<Tls>,
}

impl Host {
    /// Connects from an address of this machine, with a receive buffer of `buffer` bytes if given.
    pub(crate) fn connect(&self, from: Ipv4Addr, buffer: Option<usize>) -> io::Result<TcpStream> {
        let stream = self.begin(from, buffer, SocketFlags::empty())?;
        stream.set_read_timeout(Some(MAX_WAIT))?;
        Ok(stream)
    }

    /// Connects in the same way; with `NONBLOCK` in `flags` it only begins to.
    pub(crate) fn begin(
        &self,
        from: Ipv4Addr,
        buffer: Option<usize>,
        flags: SocketFlags,
    ) -> io::Result<TcpStream> {
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC | flags, Some(ipproto::TCP))?;
        // If this user may not choose it, the system's default applies, which the run has recorded.
        let _ = sockopt::set_tcp_congestion(&socket, &self.congestion);
        if let Some(bytes) = buffer {
            sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        // Ends with a reset, so that no port waits for a minute after each of many thousands.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        if from != Ipv4Addr::LOCALHOST {
            bind(&socket, &SocketAddrV4::new(from, 0))?;
        }
        match connect(&socket, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(crate) fn request(&self, path: &str) -> Vec<u8> {
        let host = self.address;
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {AGENT}\r\nAccept: */*\r\n\r\n")
            .into_bytes()
    }

    /// Sends a request over a new connection, and takes its response, a body of `size` bytes.
    pub(crate) fn get(&self, request: &[u8], size: u64) -> io::Result<()> {
        LoadConnection::to(self, Ipv4Addr::LOCALHOST)?.ask_whole(request, size, |_| {})
    }

    /// Returns the digest of a file of `size` bytes as it arrives.
    pub(crate) fn digest(&self, path: &str, size: u64) -> io::Result<String> {
        let mut client = LoadConnection::to(self, Ipv4Addr::LOCALHOST)?;
        let mut hasher = Sha256::new();
        client.ask_whole(&self.request(path), size, |bytes| hasher.update(bytes))?;
        Ok(hex(&hasher.finalize()))
    }
}

impl LoadConnection {
    pub(crate) fn to(host: &Host, from: Ipv4Addr) -> io::Result<Self> {
        Self::new(host.connect(from, None)?, host.tls.as_ref())
    }

    /// Sends a request and takes its response, a body of `size` bytes.
    pub(crate) fn ask_whole(
        &mut self,
        request: &[u8],
        size: u64,
        mut body: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.ask(request)?;
        let mut responses = Responses::new(size);
        let mut buffer = vec![0; size.saturating_add(4 << 10).min(1 << 20) as usize];
        while responses.finished == 0 {
            let piece = match self.read(&mut buffer) {
                Ok(0) => return Err(ResponseFault::End.into()),
                Ok(len) => &buffer[..len],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait()?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            responses.feed(piece, &mut body)?;
        }
        let is_between = responses.finished == 1 && responses.is_between();
        if is_between { Ok(()) } else { Err(ResponseFault::Surplus.into()) }
    }
}

/// The `User-Agent`, as long as that of an ordinary client.
const AGENT: &str = concat!("underpass/", env!("CARGO_PKG_VERSION"));
