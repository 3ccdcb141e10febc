//! An origin that does what it is told, also what no origin should do.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::rig::until;

/// A request as the origin got it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn field(&self, name: &str) -> Option<&str> {
        let is_meant = |(known, _): &&(String, String)| known.eq_ignore_ascii_case(name);
        self.fields.iter().find(is_meant).map(|(_, value)| value.as_str())
    }

    /// The bytes that are asked for, of an object of this length.
    pub fn range(&self, len: usize) -> Option<(usize, usize)> {
        let (start, end) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let end = end.parse::<usize>().map_or(len, |end| (end + 1).min(len));
        Some((start.parse().unwrap(), end))
    }
}

type Act = dyn Fn(&Asked, &mut Sending) + Send + Sync;

/// The origin.
pub struct Origin {
    pub address: String,
    shared: Arc<Shared>,
}

struct Shared {
    act: Box<Act>,
    asked: Mutex<Vec<Asked>>,
    sent: AtomicU64,
    is_over: AtomicBool,
}

/// The connection on which an answer is sent.
pub struct Sending<'s> {
    stream: TcpStream,
    sent: &'s AtomicU64,
    /// Whether the connection ends after this answer.
    pub closes: bool,
}

impl Sending<'_> {
    /// Sends a head; lines are separated by line feeds.
    pub fn head(&mut self, lines: &str) {
        let head = lines.trim().replace('\n', "\r\n") + "\r\n\r\n";
        let _ = self.stream.write_all(head.as_bytes());
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
    pub fn new(act: impl Fn(&Asked, &mut Sending) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            act: Box::new(act),
            asked: Mutex::default(),
            sent: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let here = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if here.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let here = Arc::clone(&here);
                thread::spawn(move || here.serve(stream));
            }
        });
        Self { address, shared }
    }

    /// Sends an object.
    pub fn of(object: &Object) -> Self {
        let object = object.clone();
        Self::new(move |asked, sending| object.send(asked, sending))
    }

    /// Sends an object, but of what `holds` applies to no more than `at` bytes until the gate is open.
    pub fn holding(
        object: &Object,
        at: usize,
        holds: impl Fn(&Asked) -> bool + Send + Sync + 'static,
    ) -> (Self, Gate) {
        let gate = Gate::default();
        let (object, held) = (object.clone(), gate.clone());
        let origin = Self::new(move |asked, sending| {
            let (head, body) = object.answer(asked);
            let first = if holds(asked) { at } else { body.len() };
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
        format!("http://{}/", self.address)
    }

    /// The URL with a name and a password.
    pub fn url_with_password(&self) -> String {
        format!("http://user:word@{}/", self.address)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// The bytes of bodies that were sent.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Accepts no connection any more.
    pub fn end(&self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // The listener notices it with the next connection, and is closed.
        let _ = TcpStream::connect(&self.address);
        until("an origin that is gone", || TcpStream::connect(&self.address).is_err());
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let Some(asked) = read_request(&mut reader) else { return };
            self.asked.lock().unwrap().push(asked.clone());
            if self.is_over.load(Ordering::Relaxed) {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            let stream = stream.try_clone().unwrap();
            let mut sending = Sending { stream, sent: &self.sent, closes: false };
            (self.act)(&asked, &mut sending);
            if sending.closes {
                let _ = sending.stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<Asked> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut fields = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => fields.push((name.to_owned(), value.to_owned())),
            None => {
                let mut asked = Asked { method, path, fields, body: Vec::new() };
                let len = asked.field("content-length").map_or(0, |len| len.parse().unwrap());
                asked.body.resize(len, 0);
                reader.read_exact(&mut asked.body).ok()?;
                return Some(asked);
            }
        }
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
    pub fn answer(&self, asked: &Asked) -> (String, &[u8]) {
        let Self { tag, lines, .. } = self;
        if asked.field("if-none-match") == Some(tag) {
            return (format!("HTTP/1.1 304 Not Modified\nETag: {tag}\n{lines}"), &[]);
        }
        let len = self.bytes.len();
        let is_same = asked.field("if-range").is_none_or(|known| known == tag);
        match asked.range(len).filter(|_| is_same) {
            Some((start, _)) if start >= len => {
                let head = format!("HTTP/1.1 416 No\nContent-Range: bytes */{len}");
                (head + "\nContent-Length: 0", &[])
            }
            Some((start, end)) => {
                let range = format!("Content-Range: bytes {start}-{}/{len}", end - 1);
                let head = format!("HTTP/1.1 206 Partial\nETag: {tag}\n{lines}\n{range}");
                (format!("{head}\nContent-Length: {}", end - start), &self.bytes[start..end])
            }
            None => {
                let head = format!("HTTP/1.1 200 OK\nETag: {tag}\n{lines}\nAccept-Ranges: bytes");
                (format!("{head}\nContent-Length: {len}"), &self.bytes)
            }
        }
    }

    pub fn send(&self, asked: &Asked, sending: &mut Sending) {
        let (head, body) = self.answer(asked);
        sending.head(&head);
        if asked.method != "HEAD" {
            sending.body(body);
        }
    }
}

/// Something that one thread waits for and another one gives.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    pub fn open(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn wait(&self) {
        until("a gate", || self.0.load(Ordering::Relaxed));
    }
}
