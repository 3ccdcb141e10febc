//! A client that reads replies strictly by what their heads say.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};

use super::{PATIENCE, text};

/// One connection, with what was read ahead.
pub struct Client<S = TcpStream> {
    pub stream: S,
    bytes: Vec<u8>,
}

/// A whole response.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Client {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, bytes: Vec::new() }
    }

    /// Sends no more, but goes on reading.
    pub fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

impl Client<UnixStream> {
    pub fn unix(path: &str) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, bytes: Vec::new() })
    }
}

impl<S: Read + Write> Client<S> {
    /// Over whatever carries bytes.
    pub fn over(stream: S) -> Self {
        Self { stream, bytes: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a request and reads the reply.
    pub fn ask(&mut self, verb: &str, path: &str, fields: &[&str]) -> Reply {
        self.try_ask(verb, path, fields).unwrap()
    }

    pub fn get(&mut self, path: &str) -> Reply {
        self.ask("GET", path, &[])
    }

    /// The same, for a server that may break off.
    pub fn try_ask(&mut self, verb: &str, path: &str, fields: &[&str]) -> io::Result<Reply> {
        self.stream.write_all(request(verb, path, fields).as_bytes())?;
        self.try_reply(verb != "HEAD")
    }

    /// The reply to what was sent.
    pub fn reply(&mut self) -> Reply {
        self.try_reply(true).unwrap()
    }

    /// The reply, if it comes whole; `has_body` is false for replies to HEAD.
    pub fn try_reply(&mut self, has_body: bool) -> io::Result<Reply> {
        let mut reply = self.head()?;
        if !has_body || matches!(reply.status, 204 | 304) {
            return Ok(reply);
        }
        if reply.field("Transfer-Encoding") == Some("chunked") {
            reply.body = self.chunks()?;
        } else if let Some(len) = reply.field("Content-Length") {
            reply.body = self.take(len.parse().unwrap())?;
        } else {
            assert_eq!(reply.field("Connection"), Some("close"), "a body without an end");
            self.stream.read_to_end(&mut self.bytes)?;
            reply.body = std::mem::take(&mut self.bytes);
        }
        Ok(reply)
    }

    /// The head of a reply, and nothing of its body.
    pub fn head(&mut self) -> io::Result<Reply> {
        let end = loop {
            if let Some(at) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more()?;
        };
        let head: Vec<u8> = self.bytes.drain(..end).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end_matches("\r\n").split("\r\n");
        let status = lines.next().unwrap();
        assert!(status.starts_with("HTTP/1.1 "), "{status}");
        let status = status[9..12].parse().unwrap();
        let field = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        };
        Ok(Reply { status, fields: lines.map(field).collect(), body: Vec::new() })
    }

    /// So many bytes of a body.
    pub fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.bytes.len() < len {
            self.read_more()?;
        }
        Ok(self.bytes.drain(..len).collect())
    }

    /// Whether the server has closed this connection in an orderly way, without another byte.
    pub fn is_closed(&mut self) -> bool {
        let rest = self.read_more().map_err(|error| error.kind());
        assert!(self.bytes.is_empty(), "{}", text(&self.bytes));
        rest == Err(io::ErrorKind::UnexpectedEof)
    }

    /// How the connection ends, after however many bytes.
    pub fn end(&mut self) -> io::Result<usize> {
        self.stream.read_to_end(&mut self.bytes)
    }

    /// The same, of a client that reads nothing before the server has ended.
    pub fn end_when_ended(&mut self, has_ended: impl FnMut() -> bool) -> io::Result<usize> {
        super::wait_until("the server has ended", has_ended);
        self.end()
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                match self.bytes.windows(2).position(|two| two == b"\r\n") {
                    Some(at) => break at,
                    None => self.read_more()?,
                }
            };
            let line: Vec<u8> = self.bytes.drain(..end + 2).collect();
            let len = usize::from_str_radix(text(&line).trim_end(), 16).unwrap();
            body.extend(self.take(len)?);
            assert_eq!(self.take(2)?, b"\r\n");
            if len == 0 {
                return Ok(body);
            }
        }
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut piece = [0; 64 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.bytes.extend_from_slice(&piece[..read]);
                    return Ok(());
                }
                // A signal for another test ends a read that has a timeout.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Reply {
    /// The value of a field that is there once at the most.
    #[track_caller]
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} is there twice: {:?}", self.fields);
        value
    }

    pub fn text(&self) -> String {
        text(&self.body)
    }

    /// The status, which range of how many bytes, and the body.
    pub fn part(&self) -> (u16, Option<&str>, String) {
        (self.status, self.field("Content-Range"), self.text())
    }
}

/// A request with a `Host` and these fields.
pub fn request(verb: &str, path: &str, fields: &[&str]) -> String {
    let fields: String = fields.iter().flat_map(|field| [*field, "\r\n"]).collect();
    format!("{verb} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

/// A connection whose receive buffer was of this size from the beginning.
pub fn narrow(address: SocketAddr, buffer: usize) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, buffer).unwrap();
    connect(&socket, &address).unwrap();
    socket.into()
}
