//! An origin that follows a script, and can send what no origin should.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use underpass_testkit::http::Request;
use underpass_testkit::http::{Server, close, file_head, write_head};

use crate::rig::until;

/// The origin.
pub struct Origin {
    pub address: String,
    server: Server,
    sent: Arc<AtomicU64>,
}

/// The connection on which an answer is sent.
pub struct Sending<'s> {
    stream: &'s mut TcpStream,
    sent: &'s AtomicU64,
    /// Whether the connection ends after this answer.
    pub closes: bool,
}

impl Sending<'_> {
    /// Sends a head; lines are separated by line feeds.
    pub fn head(&mut self, lines: &str) {
        let _ = write_head(self.stream, &format!("{}\n\n", lines.trim()));
    }

    /// Sends bytes that are counted as no part of a body.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends a part of a body.
    pub fn body(&mut self, bytes: &[u8]) {
        let len = bytes.len() as u64;
        // Counted first, because the client may have them all before the call returns.
        self.sent.fetch_add(len, Ordering::Relaxed);
        if self.stream.write_all(bytes).is_err() {
            self.sent.fetch_sub(len, Ordering::Relaxed);
        }
    }

    /// Sends an answer with a body, unless it says how long it is itself.
    pub fn answer(&mut self, lines: &str, body: &[u8]) {
        self.head(&format!("{}\nContent-Length: {}", lines.trim(), body.len()));
        self.body(body);
    }
}

impl Origin {
    pub fn new(act: impl Fn(&Request, &mut Sending) + Send + Sync + 'static) -> Self {
        let sent = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&sent);
        let server = Server::start(move |request, stream| {
            let mut sending = Sending { stream, sent: &counted, closes: false };
            act(request, &mut sending);
            if sending.closes { close() } else { Ok(()) }
        });
        Self { address: server.address.to_string(), server, sent }
    }

    /// Sends an object.
    pub fn of(object: &Object) -> Self {
        let object = object.clone();
        Self::new(move |request, sending| object.send(request, sending))
    }

    /// Sends an object, but of what `holds` applies to no more than `at` bytes until the gate is open.
    pub fn holding(
        object: &Object,
        at: usize,
        holds: impl Fn(&Request) -> bool + Send + Sync + 'static,
    ) -> (Self, Gate) {
        let gate = Gate::default();
        let (object, held) = (object.clone(), gate.clone());
        let origin = Self::new(move |request, sending| {
            let (head, body) = object.answer(request);
            let first = if holds(request) { at } else { body.len() };
            sending.head(&head);
            sending.body(&body[..first]);
            if first < body.len() {
                held.wait();
                sending.body(&body[first..]);
            }
        });
        (origin, gate)
    }

    pub fn url(&self) -> String {
        self.server.url("/")
    }

    /// The URL with a name and a password.
    pub fn url_with_password(&self) -> String {
        format!("http://user:word@{}/", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.server.requests()
    }

    /// The bytes of bodies that were sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Stops accepting connections.
    pub fn end(&self) {
        self.server.end();
    }
}

/// An object, which is sent as the standard has it.
#[derive(Clone, Debug)]
pub struct Object {
    pub bytes: Arc<Vec<u8>>,
    pub tag: String,
    /// Further lines of the head.
    pub lines: String,
}

impl Object {
    pub fn new(bytes: Vec<u8>, tag: &str) -> Self {
        let lines = "Cache-Control: max-age=1000\nContent-Type: text/plain".to_owned();
        Self { bytes: Arc::new(bytes), tag: format!("\"{tag}\""), lines }
    }

    pub fn with(self, lines: &str) -> Self {
        Self { lines: lines.to_owned(), ..self }
    }

    /// The head that answers a request, and the body.
    pub fn answer(&self, request: &Request) -> (String, &[u8]) {
        let Self { tag, lines, .. } = self;
        if request.field("if-none-match") == Some(tag) {
            return (format!("HTTP/1.1 304 Not Modified\nETag: {tag}\n{lines}"), &[]);
        }
        let (head, range) = file_head(request, &self.bytes, tag, &format!("{lines}\n"));
        (head, &self.bytes[range])
    }

    pub fn send(&self, request: &Request, sending: &mut Sending) {
        let (head, body) = self.answer(request);
        sending.head(&head);
        if request.method != "HEAD" {
            sending.body(body);
        }
    }
}

/// An event that one thread waits for and another one triggers.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    pub fn open(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn wait(&self) {
        until("a gate", || self.is_open());
    }
}
