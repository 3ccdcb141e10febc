//! Two ends of a loopback connection: ours, driven by poll(2), and a rustls peer on its own thread.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use sha2::{Digest, Sha256};
use underpass_engine::TlsTransport;
pub(crate) use underpass_testkit::tls::{Certificate, provider};
use underpass_transport::tls::{
    Acceptor, Connector, Handshake, HandshakeError, HandshakeProgress, Identity, Session, Trust,
};

/// What this crate makes of a certificate.
pub(crate) trait Usable {
    fn identity(&self) -> Identity;
    fn acceptor(&self) -> Acceptor;
    /// Trusts this certificate alone.
    fn trust(&self) -> Trust;
    fn connector(&self) -> Connector;
}

impl Usable for Certificate {
    fn identity(&self) -> Identity {
        let folder = self.folder.path();
        Identity::load(&folder.join("cert.pem"), &folder.join("key.pem")).unwrap()
    }

    fn acceptor(&self) -> Acceptor {
        Acceptor::new(self.identity(), false).unwrap()
    }

    fn trust(&self) -> Trust {
        Trust { authorities: Some(self.folder.path().join("cert.pem")), ..Trust::default() }
    }

    fn connector(&self) -> Connector {
        Connector::new(&self.trust()).unwrap()
    }
}

/// Returns both ends of a new connection.
pub(crate) fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    one.set_nonblocking(true).unwrap();
    (one, other)
}

/// A client at the peer's end.
pub(crate) type ClientPeer = StreamOwned<ClientConnection, TcpStream>;
/// A server at the peer's end.
pub(crate) type ServerPeer = StreamOwned<ServerConnection, TcpStream>;

/// Runs a client at the peer's end of a socket, on another thread.
pub(crate) fn client_peer<T: Send + 'static>(
    config: ClientConfig,
    act: impl FnOnce(&mut ClientPeer) -> T + Send + 'static,
) -> (TcpStream, JoinHandle<T>) {
    let (ours, theirs) = pair();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    (ours, std::thread::spawn(move || act(&mut StreamOwned::new(connection, theirs))))
}

/// Runs a server at the peer's end of a socket, on another thread.
pub(crate) fn server_peer<T: Send + 'static>(
    config: Arc<ServerConfig>,
    act: impl FnOnce(&mut ServerPeer) -> T + Send + 'static,
) -> (TcpStream, JoinHandle<T>) {
    let (ours, theirs) = pair();
    let connection = ServerConnection::new(config).unwrap();
    (ours, std::thread::spawn(move || act(&mut StreamOwned::new(connection, theirs))))
}

/// Completes a handshake, waiting where necessary.
pub(crate) fn shake(socket: &TcpStream, mut hands: Handshake) -> Result<Session, HandshakeError> {
    loop {
        match hands.advance(socket.as_fd())? {
            HandshakeProgress::Reads => wait(socket, PollFlags::IN),
            HandshakeProgress::Writes => wait(socket, PollFlags::OUT),
            HandshakeProgress::Done(session) => return Ok(session),
        }
    }
}

/// Accepts a connection as our server.
pub(crate) fn accept(socket: &TcpStream, acceptor: &Acceptor) -> Result<Session, HandshakeError> {
    shake(socket, Handshake::accept(acceptor).unwrap())
}

/// Connects to localhost as our client.
pub(crate) fn connect(socket: &TcpStream, to: &Connector) -> Result<Session, HandshakeError> {
    shake(socket, Handshake::connect(to, "localhost").unwrap())
}

/// Waits until the socket is ready.
pub(crate) fn wait(socket: &TcpStream, flags: PollFlags) {
    let ten_seconds = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(socket, flags)], Some(&ten_seconds)).unwrap();
    assert!(ready > 0, "nothing happens on the socket");
}

/// Takes one step of a session as soon as possible.
pub(crate) fn when_ready<T>(
    socket: &TcpStream,
    flags: PollFlags,
    mut step: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        match step() {
            Err(Errno::AGAIN) => wait(socket, flags),
            other => return other,
        }
    }
}

/// A session with its socket, for tests that may wait.
pub(crate) struct Ours(pub(crate) Session, pub(crate) TcpStream);

impl Ours {
    pub(crate) fn send(&self, mut bytes: &[u8]) -> Result<(), Errno> {
        let Self(session, socket) = self;
        while !bytes.is_empty() {
            let send = || session.send(socket.as_fd(), bytes, false);
            bytes = &bytes[when_ready(socket, PollFlags::OUT, send)?..];
        }
        when_ready(socket, PollFlags::OUT, || session.flush(socket.as_fd()))
    }

    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let Self(session, socket) = self;
        when_ready(socket, PollFlags::IN, || session.receive(socket.as_fd(), buffer))
    }

    /// Receives everything until the peer announces the end.
    pub(crate) fn receive_all(&self, step: usize) -> Result<Vec<u8>, Errno> {
        let mut all = Vec::new();
        let mut buffer = vec![0; step];
        loop {
            match self.receive(&mut buffer)? {
                0 => return Ok(all),
                len => all.extend_from_slice(&buffer[..len]),
            }
        }
    }

    pub(crate) fn close(&self) {
        self.0.close(self.1.as_fd());
    }
}

/// Returns bytes that reveal if one is lost or duplicated.
pub(crate) fn sample(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    bytes.take(len).collect()
}

pub(crate) fn digest(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

/// Exchanges a word with our side, as the peer.
pub(crate) fn converse(peer: &mut (impl Read + Write)) {
    let mut word = [0; 4];
    peer.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"ping");
    peer.write_all(b"pong").unwrap();
}

/// Exchanges a word with the peer, as our side.
pub(crate) fn converse_with_peer(ours: &Ours) {
    ours.send(b"ping").unwrap();
    let mut word = [0; 4];
    let mut len = 0;
    while len < word.len() {
        len += ours.receive(&mut word[len..]).unwrap();
    }
    assert_eq!(&word, b"pong");
}
