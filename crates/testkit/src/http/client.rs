//! A client that reads replies strictly according to their heads.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection, with the bytes that were read ahead.
#[derive(Debug)]
pub struct Client<S = TcpStream> {
    /// The connection.
    pub stream: S,
    bytes: Vec<u8>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The connection was not read to its end.
    #[default]
    Open,
    /// The server closed it in an orderly way.
    Closed,
    /// The server reset it.
    Reset,
}

/// A response.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The status; 0 if the connection ended before the head.
    pub status: u16,
    /// The whole head.
    pub head: String,
    /// The fields of the head, in order.
    pub fields: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
    /// The end of the connection.
    pub end: End,
}

impl Client {
    /// Returns a client of this connection.
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, bytes: Vec::new() }
    }

    /// Closes the sending half of the connection.
    pub fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

impl Client<UnixStream> {
    /// Returns a client that is connected to the socket with this path.
    ///
    /// # Errors
    ///
    /// If nothing listens there.
    pub fn unix(path: &str) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, bytes: Vec::new() })
    }
}

impl<S: Read + Write> Client<S> {
    /// Returns a client of any stream of bytes.
    pub fn over(stream: S) -> Self {
        Self { stream, bytes: Vec::new() }
    }

    /// Sends these bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a request and reads the reply.
    pub fn ask(&mut self, verb: &str, path: &str, fields: &[&str]) -> Reply {
        self.try_ask(verb, path, fields).unwrap()
    }

    /// Sends a GET and reads the reply.
    pub fn get(&mut self, path: &str) -> Reply {
        self.ask("GET", path, &[])
    }

    /// Sends a request and reads the reply of a server that may abort.
    ///
    /// # Errors
    ///
    /// If the connection fails.
    pub fn try_ask(&mut self, verb: &str, path: &str, fields: &[&str]) -> io::Result<Reply> {
        self.stream.write_all(request(verb, path, fields).as_bytes())?;
        self.try_reply(verb != "HEAD")
    }

    /// Reads the reply to what was sent.
    pub fn reply(&mut self) -> Reply {
        self.try_reply(true).unwrap()
    }

    /// Reads the reply, if it arrives whole; `has_body` is false for replies to HEAD.
    ///
    /// # Errors
    ///
    /// If the connection fails.
    pub fn try_reply(&mut self, has_body: bool) -> io::Result<Reply> {
        let mut reply = self.head()?;
        if !has_body || matches!(reply.status, 204 | 304) {
            return Ok(reply);
        }
        if reply.field("Transfer-Encoding") == Some("chunked") {
            self.read_chunks(&mut reply.body)?;
        } else if let Some(len) = reply.field("Content-Length") {
            reply.body = self.take(len.parse().unwrap())?;
        } else {
            assert_eq!(reply.field("Connection"), Some("close"), "a body without an end");
            self.stream.read_to_end(&mut self.bytes)?;
            reply.body = std::mem::take(&mut self.bytes);
        }
        Ok(reply)
    }

    /// Reads to the end of the connection, and returns the received part of the reply to a request
    /// that is not HEAD.
    pub fn finish(mut self) -> Reply {
        let head = self.head();
        let mut read = head.as_ref().map(|_| ()).map_err(|error| error.kind());
        let mut reply = head.unwrap_or_default();
        let is_chunked = reply.field("Transfer-Encoding") == Some("chunked");
        if is_chunked {
            read = self.read_chunks(&mut reply.body).map_err(|error| error.kind());
        }
        let is_whole = read.is_ok();
        while read.is_ok() {
            read = self.read_more().map_err(|error| error.kind());
        }
        reply.end = match read {
            Err(ErrorKind::UnexpectedEof) => End::Closed,
            Err(ErrorKind::ConnectionReset) => End::Reset,
            other => panic!("{other:?} after {reply:?}"),
        };
        if is_chunked {
            let is_whole = is_whole && self.bytes.is_empty();
            assert!(is_whole || reply.end == End::Reset, "a part in chunks that looks whole");
        } else if reply.status != 0 {
            reply.body = self.bytes;
        }
        reply
    }

    /// Reads until this many bytes of the body have arrived, and keeps them for the reply.
    pub fn read_body(&mut self, len: usize) {
        while self.head_len().is_none_or(|head| self.bytes.len() - head < len) {
            let read = self.read_more();
            assert!(read.is_ok(), "{read:?} after {}", text(&self.bytes));
        }
    }

    /// Reads until the head has arrived, and keeps it for the reply.
    pub fn read_head(&mut self) {
        self.read_body(0);
    }

    fn head_len(&self) -> Option<usize> {
        Some(self.bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4)
    }

    /// Reads the head of a reply, and nothing of its body.
    ///
    /// # Errors
    ///
    /// If the connection fails.
    pub fn head(&mut self) -> io::Result<Reply> {
        let end = loop {
            if let Some(len) = self.head_len() {
                break len;
            }
            self.read_more()?;
        };
        let head: Vec<u8> = self.bytes.drain(..end).collect();
        let head = String::from_utf8(head).unwrap();
        let head = head.trim_end_matches("\r\n").to_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap();
        assert!(status.starts_with("HTTP/1.1 "), "{status}");
        let status = status[9..12].parse().unwrap();
        let field = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        };
        let fields = lines.map(field).collect();
        Ok(Reply { status, head, fields, ..Reply::default() })
    }

    /// Reads `len` bytes of a body.
    ///
    /// # Errors
    ///
    /// If the connection fails.
    pub fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.bytes.len() < len {
            self.read_more()?;
        }
        Ok(self.bytes.drain(..len).collect())
    }

    /// Returns whether the server closes the connection in an orderly way, without another byte.
    pub fn is_closed(&mut self) -> bool {
        let rest = self.read_more().map_err(|error| error.kind());
        assert!(self.bytes.is_empty(), "{}", text(&self.bytes));
        rest == Err(ErrorKind::UnexpectedEof)
    }

    /// Reads to the end of the connection, and returns the number of bytes read.
    ///
    /// # Errors
    ///
    /// If the connection fails.
    pub fn end(&mut self) -> io::Result<usize> {
        self.stream.read_to_end(&mut self.bytes)
    }

    /// Waits until the server has ended, and only then reads to the end of the connection.
    ///
    /// # Errors
    ///
    /// If the connection fails.
    pub fn end_when_ended(&mut self, has_ended: impl FnMut() -> bool) -> io::Result<usize> {
        crate::wait_until("the server has ended", has_ended);
        self.end()
    }

    /// Reads the data of chunks up to the last one, or as much as arrives.
    fn read_chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let end = loop {
                match self.bytes.windows(2).position(|two| two == b"\r\n") {
                    Some(at) => break at,
                    None => self.read_more()?,
                }
            };
            let line: Vec<u8> = self.bytes.drain(..end + 2).collect();
            let len = usize::from_str_radix(text(&line).trim_end(), 16).unwrap();
            while self.bytes.len() < len {
                if let Err(error) = self.read_more() {
                    body.append(&mut self.bytes);
                    return Err(error);
                }
            }
            body.extend(self.bytes.drain(..len));
            assert_eq!(self.take(2)?, b"\r\n");
            if len == 0 {
                return Ok(());
            }
        }
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut piece = [0; 64 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.bytes.extend_from_slice(&piece[..read]);
                    return Ok(());
                }
                // A signal for another test interrupts a read that has a timeout.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Reply {
    /// Returns the value of a field that must not occur twice.
    #[track_caller]
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} is there twice: {:?}", self.fields);
        value
    }

    /// Returns where the upload begun at a path continues: `Location` is relative to that.
    #[track_caller]
    pub fn upload_of(&self, path: &str) -> String {
        let query = self.field("Location").expect("no Location");
        assert!(query.starts_with("?upload="), "{query}");
        format!("{path}{query}")
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        text(&self.body)
    }

    /// Returns the `Cache-Status` field; empty if there is none.
    pub fn cache(&self) -> &str {
        self.field("cache-status").unwrap_or_default()
    }

    /// Checks the status, the body and the end.
    #[track_caller]
    pub fn assert_is(&self, status: u16, body: &[u8]) {
        assert_eq!((self.status, self.end), (status, End::Closed), "{}", self.head);
        assert!(self.body == body, "{} bytes are not the {} expected", self.body.len(), body.len());
    }

    /// Returns the status, the `Content-Range` and the body as text.
    pub fn part(&self) -> (u16, Option<&str>, String) {
        (self.status, self.field("Content-Range"), self.text())
    }
}

/// Returns a request with a `Host` and these fields.
pub fn request(verb: &str, path: &str, fields: &[&str]) -> String {
    let fields: String = fields.iter().flat_map(|field| [*field, "\r\n"]).collect();
    format!("{verb} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

/// The longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(120);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
