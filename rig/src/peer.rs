//! A client that speaks TLS in user space, independently of the program under test, and can be
//! slow, misbehaving and inquisitive.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

use crate::Result;
use crate::terms;

/// How long a peer waits for a byte: only a hang takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The client, after connecting and the handshake.
#[derive(Debug)]
pub(crate) struct Peer {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
}

/// The head of a response.
#[derive(Debug)]
pub(crate) struct Head {
    /// Its status.
    pub(crate) status: u16,
    /// All of it.
    pub(crate) text: String,
}

impl Head {
    /// Returns the value of a field, by its name in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Returns the length of the body.
    pub(crate) fn length(&self) -> Result<u64> {
        let value = self.field("content-length").ok_or("a response without Content-Length")?;
        Ok(value.parse()?)
    }
}

impl Peer {
    /// Connects with any suite.
    pub(crate) fn connect(port: u16) -> Result<Self> {
        Self::with(TcpStream::connect(("127.0.0.1", port))?, terms::client(None)?)
    }

    /// Connects with this configuration.
    pub(crate) fn on(port: u16, config: Arc<ClientConfig>) -> Result<Self> {
        Self::with(TcpStream::connect(("127.0.0.1", port))?, config)
    }

    /// Connects with buffers of only a few KiB, so that the server's writes are partial.
    pub(crate) fn narrow(port: u16) -> Result<Self> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        set_socket_recv_buffer_size(&socket, 4096)?;
        connect(&socket, &SocketAddr::from(([127, 0, 0, 1], port)))?;
        Self::with(TcpStream::from(socket), terms::client(None)?)
    }

    /// Makes the handshake on a connection.
    fn with(stream: TcpStream, config: Arc<ClientConfig>) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let tls = ClientConnection::new(config, ServerName::try_from("127.0.0.1")?)?;
        let mut stream = StreamOwned::new(tls, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self { stream: BufReader::with_capacity(64 << 10, stream) })
    }

    /// Returns whether the handshake resumed an earlier session.
    pub(crate) fn is_resumed(&self) -> bool {
        self.stream.get_ref().conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Requests a path, with additional fields of the head, each with its line end.
    pub(crate) fn ask(&mut self, verb: &str, path: &str, fields: &str) -> Result<()> {
        let head = format!("{verb} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        self.write(head.as_bytes())
    }

    /// Writes bytes of a request.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(bytes)?;
        Ok(stream.flush()?)
    }

    /// Reads the head of a response.
    pub(crate) fn head(&mut self) -> Result<Head> {
        let mut text = String::new();
        loop {
            let from = text.len();
            if self.stream.read_line(&mut text)? == 0 {
                return Err("the connection ended before the head of a response did".into());
            }
            if text[from..].trim().is_empty() {
                break;
            }
        }
        let status = text.split(' ').nth(1).ok_or("no status")?.parse()?;
        Ok(Head { status, text })
    }

    /// Requests a path and reads the head, which must have this status.
    pub(crate) fn get(&mut self, path: &str, fields: &str, status: u16) -> Result<Head> {
        self.ask("GET", path, fields)?;
        let head = self.head()?;
        if head.status != status {
            return Err(format!("{path}: {} instead of {status}", head.text).into());
        }
        Ok(head)
    }

    /// Requests a path and returns the body as text.
    pub(crate) fn text(&mut self, path: &str) -> Result<String> {
        let head = self.get(path, "", 200)?;
        let mut text = String::new();
        self.body().take(head.length()?).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Returns a reader of what follows the head.
    pub(crate) fn body(&mut self) -> &mut impl Read {
        &mut self.stream
    }

    /// Changes our sending key, and requests that the server change its own.
    pub(crate) fn change_keys(&mut self) -> Result<()> {
        let stream = self.stream.get_mut();
        stream.conn.refresh_traffic_keys()?;
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut stream.sock)?;
        }
        Ok(())
    }

    /// Announces by TLS that we send no more.
    pub(crate) fn close_notify(&mut self) -> Result<()> {
        let stream = self.stream.get_mut();
        stream.conn.send_close_notify();
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut stream.sock)?;
        }
        Ok(())
    }

    /// Fails unless the next thing that the server sends is its close_notify.
    pub(crate) fn ends_well(&mut self) -> Result<()> {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => Ok(()),
            Ok(_) => Err("the server goes on instead of ending".into()),
            Err(error) => Err(format!("not ended by close_notify: {error}").into()),
        }
    }

    /// Returns the socket, without TLS.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream.get_ref().sock
    }
}
