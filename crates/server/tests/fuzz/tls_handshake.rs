//! An attacker in the middle changes, drops, adds and cuts what a TLS client and a TLS server say:
//! each receives what the other sent or a failure, and both end.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use rustix::io::Errno;
use underpass_engine::TlsTransport;
use underpass_transport::tls::{
    Acceptor, Connector, Handshake, HandshakeProgress, Identity, Session, Trust,
};

use crate::input::Input;

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"",
    b"\0\0\0\x05\x01",
    b"\x01\0\0\x60\xff\x02\x01\x10\x10",
    b"\x04\x01\0\x03\0",
    b"\x07\x06\0\x16\x03\x03\0\x05hello",
    b"\x03\x04\0\x17\x03\x03\xff\xff",
    b"\x06\0\0GET / HTTP/1.1\r\n\r\n",
];

/// The client's request, and the length of the answer: more than one record.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
const ANSWER_LEN: usize = 20_000;

/// More turns than a handshake that succeeds can need.
const MOST_TURNS: usize = 2000;

/// The attacks, each at an offset in the bytes of one side.
pub(crate) fn check(data: &[u8]) {
    let mut input = Input(data);
    let mut tricks = [Vec::new(), Vec::new()];
    while !input.0.is_empty() {
        let (what, high, low) = (input.byte(), input.byte(), input.byte());
        let trick = match what >> 1 & 3 {
            0 => Trick::Change(input.byte()),
            1 => Trick::Cut,
            2 => Trick::Drop(input.byte()),
            _ => {
                let len = input.0.len().min(64);
                let (bytes, rest) = input.0.split_at(len);
                input = Input(rest);
                Trick::Add(bytes.to_vec())
            }
        };
        tricks[usize::from(what & 1)].push((u64::from(high) << 8 | u64::from(low), trick));
    }
    let are_alone = tricks.iter().all(Vec::is_empty);
    let [to_server, to_client] = tricks;
    let (client, middle_client) = UnixStream::pair().unwrap();
    let (server, middle_server) = UnixStream::pair().unwrap();
    let (acceptor, connector) = both();
    let answer = vec![7; ANSWER_LEN];
    let hands = Handshake::connect(connector, "a").unwrap();
    let mut client = End::new(client, hands, REQUEST, Some(answer.len()));
    let mut server = End::new(server, Handshake::accept(acceptor).unwrap(), &answer, None);
    let mut there = Wire::new(&middle_client, &middle_server, to_server);
    let mut back = Wire::new(&middle_server, &middle_client, to_client);
    for turn in 0.. {
        assert!(turn < MOST_TURNS, "they go on forever");
        let moved = [client.go(), there.carry(), server.go(), back.carry()];
        if !moved.contains(&true) {
            break;
        }
    }
    client.check(&answer);
    server.check(REQUEST);
    assert!(!are_alone || (client.end, server.end) == (Some(Ok(())), Some(Ok(()))));
}

pub(crate) fn both() -> &'static (Acceptor, Connector) {
    static BOTH: OnceLock<(Acceptor, Connector)> = OnceLock::new();
    BOTH.get_or_init(|| {
        let identity = Identity::self_signed(&["a".to_owned()]).unwrap();
        let trust = Trust { insecure: true, ..Trust::default() };
        (Acceptor::new(identity, false).unwrap(), Connector::new(&trust).unwrap())
    })
}

/// An attack on the bytes in flight.
enum Trick {
    Change(u8),
    Cut,
    Drop(u8),
    Add(Vec<u8>),
}

/// One direction of the connection.
struct Wire<'a> {
    from: &'a UnixStream,
    to: &'a UnixStream,
    tricks: Vec<(u64, Trick)>,
    at: u64,
    is_cut: bool,
}

impl<'a> Wire<'a> {
    fn new(from: &'a UnixStream, to: &'a UnixStream, mut tricks: Vec<(u64, Trick)>) -> Self {
        from.set_nonblocking(true).unwrap();
        tricks.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Self { from, to, tricks, at: 0, is_cut: false }
    }

    /// Forwards what has arrived; returns whether there was anything.
    fn carry(&mut self) -> bool {
        let mut bytes = [0; 8192];
        let len = match self.from.read(&mut bytes) {
            Ok(len) if !self.is_cut => len,
            _ => return false,
        };
        let mut carried = Vec::with_capacity(len);
        let mut left = &mut bytes[..len];
        while !left.is_empty() && !self.is_cut {
            // The bytes before the next trick are forwarded in one piece: checking each byte would
            // take most of the time.
            let next = self.tricks.last().map(|(at, _)| at.saturating_sub(self.at));
            let whole = next.map_or(left.len(), |len| left.len().min(len as usize));
            carried.extend_from_slice(&left[..whole]);
            self.at += whole as u64;
            left = &mut left[whole..];
            if let Some(first) = left.first_mut()
                && let Some((_, trick)) = self.tricks.pop()
            {
                match trick {
                    Trick::Change(mask) => *first ^= mask,
                    Trick::Cut => self.is_cut = true,
                    Trick::Add(bytes) => carried.extend_from_slice(&bytes),
                    Trick::Drop(len) => {
                        let len = left.len().min(len.into());
                        self.at += len as u64;
                        left = &mut left[len..];
                    }
                }
            }
        }
        // An end that no longer reads misses nothing.
        let _ = self.to.write_all(&carried);
        if len == 0 || self.is_cut {
            self.is_cut = true;
            let _ = self.to.shutdown(Shutdown::Write);
        }
        true
    }
}

/// One end of the connection.
struct End<'a> {
    socket: UnixStream,
    hands: Handshake,
    session: Option<Session>,
    to_say: &'a [u8],
    heard: Vec<u8>,
    /// The number of bytes after which it closes; `None` to wait for the other end's close.
    enough: Option<usize>,
    /// Whether everything arrived; `None` while it runs.
    end: Option<Result<(), ()>>,
}

impl<'a> End<'a> {
    fn new(socket: UnixStream, hands: Handshake, to_say: &'a [u8], enough: Option<usize>) -> Self {
        socket.set_nonblocking(true).unwrap();
        Self { socket, hands, session: None, to_say, heard: Vec::new(), enough, end: None }
    }

    /// Takes a step; returns whether anything happened.
    fn go(&mut self) -> bool {
        let socket = self.socket.as_fd();
        if self.end.is_some() {
            return false;
        }
        let Some(session) = &self.session else {
            match self.hands.advance(socket) {
                Ok(HandshakeProgress::Reads | HandshakeProgress::Writes) => return false,
                Ok(HandshakeProgress::Done(session)) => self.session = Some(session),
                Err(error) => {
                    assert!(!error.to_string().contains('\n'));
                    self.end = Some(Err(()));
                    let _ = self.socket.shutdown(Shutdown::Both);
                }
            }
            return true;
        };
        let before = self.to_say.len();
        while let Ok(len) = session.send(socket, self.to_say, false) {
            self.to_say = &self.to_say[len..];
            if self.to_say.is_empty() {
                break;
            }
        }
        let _ = session.flush(socket);
        let mut buffer = [0; 5000];
        match session.receive(socket, &mut buffer) {
            Err(Errno::AGAIN) => return before != self.to_say.len(),
            Ok(0) => self.end = Some(Ok(())),
            Ok(len) => {
                self.heard.extend_from_slice(&buffer[..len]);
                if self.enough == Some(self.heard.len()) {
                    session.close(socket);
                    self.end = Some(Ok(()));
                }
            }
            Err(_) => {
                self.end = Some(Err(()));
                assert!(session.has_input(), "a failure stays");
                assert!(session.receive(socket, &mut buffer).is_err());
                let _ = self.socket.shutdown(Shutdown::Both);
            }
        }
        true
    }

    /// Checks that the received bytes are a prefix of those sent, or all of them after an orderly
    /// end.
    fn check(&self, said: &[u8]) {
        match self.end {
            Some(Ok(())) => assert_eq!(self.heard, said),
            _ => assert!(said.starts_with(&self.heard)),
        }
    }
}
