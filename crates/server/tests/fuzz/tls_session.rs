//! Two ends of an established TLS session say and hear in any order, in pieces of any size: each
//! hears what the other said, and behind a damaged byte nothing.
//!
//! A handshake costs more than all that follows, so a session that was neither damaged nor closed
//! is used for the next input too; only more records have gone by.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use rustix::io::Errno;
use underpass_engine::TlsTransport;
use underpass_transport::tls::{Handshake, HandshakeProgress, Session};

use crate::input::Input;
use crate::tls_handshake::both;

/// Where the search begins: a byte that says whether damage may be done, then steps.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"\x01\x00\x05\x01\x05\x02\x09\x04\xff\x03\x09\x05\xff",
    b"\x01\x00\xff\x00\xff\x00\xff\x04\x40\x04\xff\x03\x10\x04\xff\x13\x00\x03\xff",
    b"\x01\x0b\xff\x0c\x09\x0c\xff\x0a\x06\x0e\x00\x0b\xff\x0d\xff",
    b"\0\x00\x20\x04\x09\x07\x01\x04\xff\x03\xff\x03\xff",
    b"\0\x00\x20\x06\0\x00\x20\x04\xff\x03\xff\x03\xff\x06\x01\x0c\xff",
];

/// More steps than the search needs to find something new.
const MOST_STEPS: usize = 16;

/// More than one end says or hears at once, and than one record holds.
const LONGEST: usize = 1 << 15;

thread_local! {
    static KEPT: RefCell<Option<[End; 2]>> = const { RefCell::new(None) };
}

/// Steps: what is done at which end, and how much of it.
pub(crate) fn check(data: &[u8]) {
    let mut input = Input(data);
    let may_damage = input.byte() == 0;
    let ends = KEPT.take().unwrap_or_else(establish);
    let mut pair = Pair { ends, ways: Default::default(), is_damaged: [false; 2] };
    for _ in 0..MOST_STEPS {
        if input.0.is_empty() {
            break;
        }
        let (what, size) = (input.byte(), input.byte());
        pair.step(usize::from(what >> 3 & 1), what & 7, size, may_damage);
    }
    // Everything in flight is delivered and heard.
    while [0, 1].map(|side| pair.settle(side)).contains(&true) {}
    if pair.check() {
        KEPT.set(Some(pair.ends));
    }
}

/// Two ends, and whether the bytes that each of them hears were damaged.
struct Pair {
    ends: [End; 2],
    /// The bytes in flight from each of them.
    ways: [Vec<u8>; 2],
    is_damaged: [bool; 2],
}

impl Pair {
    fn step(&mut self, side: usize, what: u8, size: u8, may_damage: bool) {
        let end = &mut self.ends[side];
        let len = usize::from(size) * 80;
        match what {
            0 | 1 => end.say(len, what == 1),
            2 => _ = end.session.flush(end.socket.as_fd()),
            3 => _ = end.hear(len),
            4 => _ = self.carry(side, usize::from(size) * 8, 0),
            5 => end.look(),
            // rustls treats damage after its own close as a mistake of ours, in debug builds alone.
            6 if may_damage && !self.is_damaged[side] => end.close(),
            7 if may_damage && !self.ends[1 - side].is_closed => {
                _ = self.carry(side, 64, size.max(1));
            }
            _ => {}
        }
    }

    /// Carries up to this many bytes to the other end, the first of them changed by a mask; whether
    /// there were any.
    fn carry(&mut self, side: usize, len: usize, mask: u8) -> bool {
        let [end, other] = [&self.ends[side], &self.ends[1 - side]];
        let way = &mut self.ways[side];
        if way.is_empty() {
            way.resize(len.min(LONGEST), 0);
            let len = (&end.wire).read(way).unwrap_or(0);
            way.truncate(len);
            if let Some(first) = way.first_mut() {
                *first ^= mask;
                self.is_damaged[1 - side] |= mask != 0;
            }
        }
        // What the other end has no room for stays on its way.
        let len = if way.is_empty() { 0 } else { (&other.wire).write(way).unwrap_or(0) };
        way.drain(..len);
        len > 0
    }

    /// Moves what there is from one side to the other; whether anything moved.
    fn settle(&mut self, side: usize) -> bool {
        let _ = self.ends[side].session.flush(self.ends[side].socket.as_fd());
        let has_moved = self.carry(side, usize::MAX, 0);
        has_moved | self.ends[1 - side].hear(LONGEST)
    }

    /// Compares what was heard with what was said; returns whether all is as after the handshake.
    fn check(&mut self) -> bool {
        let mut is_as_new = true;
        for side in [0, 1] {
            let (end, said) = (&self.ends[side], &self.ends[1 - side].said);
            assert!(said.starts_with(&end.heard), "something else than what was said");
            let is_damaged = self.is_damaged[side];
            // An end that failed because of damage may have sent an alert.
            let is_hurt = self.is_damaged.contains(&true);
            match end.fate {
                Fate::Open => assert!(is_damaged || end.heard.len() == said.len()),
                Fate::Ended => {
                    assert!(end.heard.len() == said.len() && self.ends[1 - side].is_closed)
                }
                Fate::Failed(_) => assert!(is_hurt, "a failure of nothing: {:?}", end.fate),
            }
            is_as_new &= !is_hurt && !end.is_closed && matches!(end.fate, Fate::Open);
        }
        for end in &mut self.ends {
            end.said.clear();
            end.heard.clear();
        }
        is_as_new
    }
}

/// One end, and the wire to it.
struct End {
    session: Session,
    socket: UnixStream,
    wire: UnixStream,
    said: Vec<u8>,
    heard: Vec<u8>,
    /// The buffer for what is heard next.
    buffer: Vec<u8>,
    is_closed: bool,
    fate: Fate,
}

/// What an end last heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Ended,
    Failed(Errno),
}

impl End {
    fn say(&mut self, len: usize, more: bool) {
        // Other bytes each time, so that nothing can be heard twice or left out unnoticed.
        let first = self.said.len() % 251;
        let bytes = &words()[first..first + len];
        match self.session.send(self.socket.as_fd(), bytes, more) {
            Ok(taken) => {
                assert!(taken <= len && (taken > 0 || len == 0));
                assert!(!self.is_closed || len == 0, "said after the close");
                self.said.extend_from_slice(&bytes[..taken]);
            }
            Err(Errno::AGAIN) => {}
            // It may notice damage earlier.
            Err(_) => assert!(self.is_closed || self.session.has_input()),
        }
    }

    /// Hears up to this many bytes; whether any came, or the end.
    fn hear(&mut self, len: usize) -> bool {
        let buffer = &mut self.buffer[..len.min(LONGEST)];
        let heard = self.session.receive(self.socket.as_fd(), buffer);
        match heard {
            Ok(0) if len == 0 => false,
            Ok(0) => {
                assert!(!matches!(self.fate, Fate::Failed(_)), "a failure stays");
                std::mem::replace(&mut self.fate, Fate::Ended) == Fate::Open
            }
            Ok(len) => {
                assert_eq!(self.fate, Fate::Open, "heard after the end");
                self.heard.extend_from_slice(&self.buffer[..len]);
                true
            }
            Err(Errno::AGAIN) => {
                assert_eq!(self.fate, Fate::Open, "neither an end nor a failure passes");
                false
            }
            Err(error) => {
                assert!(self.session.has_input(), "a failure stays");
                assert!(matches!(self.fate, Fate::Open | Fate::Failed(_)));
                std::mem::replace(&mut self.fate, Fate::Failed(error)) == Fate::Open
            }
        }
    }

    /// Peeks at what comes next, and checks that it does.
    fn look(&mut self) {
        let next = self.session.peek(self.socket.as_fd());
        assert_eq!(self.session.is_quiet(self.socket.as_fd()), next.is_none());
        let before = self.heard.len();
        self.hear(1);
        let is_over = self.fate != Fate::Open;
        match next {
            Some(true) => assert_eq!(self.heard.len(), before + 1),
            Some(false) => assert!(is_over && self.heard.len() == before),
            None => assert!(!is_over && self.heard.len() == before),
        }
    }

    fn close(&mut self) {
        self.session.close(self.socket.as_fd());
        self.is_closed = true;
    }
}

/// What is said: all counts up to 251, again and again.
fn words() -> &'static [u8] {
    static WORDS: OnceLock<Vec<u8>> = OnceLock::new();
    WORDS.get_or_init(|| (0..LONGEST + 251).map(|at| (at % 251) as u8).collect())
}

/// A handshake.
fn establish() -> [End; 2] {
    let (acceptor, connector) = both();
    let hands = [Handshake::connect(connector, "a"), Handshake::accept(acceptor)];
    let mut ends = hands.map(|hands| {
        let (socket, wire) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        wire.set_nonblocking(true).unwrap();
        (hands.unwrap(), socket, wire, None)
    });
    while ends.iter().any(|(.., session)| session.is_none()) {
        for side in [0, 1] {
            let (hands, socket, wire, session) = &mut ends[side];
            if session.is_none()
                && let HandshakeProgress::Done(done) = hands.advance(socket.as_fd()).unwrap()
            {
                *session = Some(done);
            }
            let mut bytes = [0; 16 * 1024];
            if let Ok(len) = wire.read(&mut bytes) {
                (&ends[1 - side].2).write_all(&bytes[..len]).unwrap();
            }
        }
    }
    ends.map(|(_, socket, wire, session)| End {
        session: session.unwrap(),
        socket,
        wire,
        said: Vec::new(),
        heard: Vec::new(),
        buffer: vec![0; LONGEST],
        is_closed: false,
        fate: Fate::Open,
    })
}
