//! A connection of a bad client.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, recv};

use crate::load::{Host, LoadConnection};

/// A connection of a bad client, which never waits.
#[derive(Debug)]
pub(super) struct BadConnection {
    pub(super) stream: TcpStream,
    /// Its number among all connections.
    pub(super) index: usize,
    pub(super) turns: u32,
    /// Bytes that it has sent.
    pub(super) sent: usize,
    /// TLS over it, for those that use it.
    pub(super) tls: Option<LoadConnection>,
}

impl BadConnection {
    /// Begins to connect, from an address of its own share of loopback.
    pub(super) fn begin(host: &Host, index: usize) -> io::Result<Self> {
        let last = u8::try_from(1 + index % ADDRESSES).unwrap_or(1);
        let from = Ipv4Addr::new(127, 0, 1, last);
        // A small buffer leaves unread bytes with the server.
        let stream = host.begin(from, Some(RECEIVE_BUFFER), SocketFlags::NONBLOCK)?;
        Ok(Self { stream, index, turns: 0, sent: 0, tls: None })
    }

    /// Sends what the socket accepts of the rest of these bytes; returns whether all are sent.
    pub(super) fn say(&mut self, bytes: &[u8]) -> io::Result<bool> {
        while self.sent < bytes.len() {
            match self.stream.write(&bytes[self.sent..]) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends these bytes, and then one more at each turn.
    pub(super) fn trickle(&mut self, begin: &[u8]) -> io::Result<()> {
        self.look()?;
        if self.say(begin)? {
            match self.stream.write(b"x") {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails if the server has closed the connection.
    pub(super) fn look(&self) -> io::Result<()> {
        match recv(&self.stream, &mut [0; 1], RecvFlags::PEEK) {
            Ok((_, 0)) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads up to `max` bytes and returns their number; fails at the end of the stream.
    pub(super) fn read(&mut self, max: usize) -> io::Result<usize> {
        let mut count = 0;
        let mut buffer = [0; 16 << 10];
        while count < max {
            let room = buffer.len().min(max - count);
            match self.stream.read(&mut buffer[..room]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => count += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// Sends a request, reads the available bytes, and sends it again after any byte of a response.
    pub(super) fn ask_again(&mut self, request: &[u8]) -> io::Result<()> {
        if self.say(request)? && self.read(1 << 20)? > 0 {
            self.sent = 0;
            self.say(request)?;
        }
        Ok(())
    }
}

const ADDRESSES: usize = 64;

const RECEIVE_BUFFER: usize = 16 << 10;
