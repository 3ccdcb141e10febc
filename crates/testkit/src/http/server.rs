//! A server that answers as a test decides, even invalidly, and remembers each request.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::wait_until;

/// A request as the server received it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The number of requests before it, over all connections.
    pub number: usize,
    /// The method.
    pub method: String,
    /// The target as it was sent, with its query.
    pub path: String,
    /// The fields, in order.
    pub fields: Vec<(String, String)>,
    /// The whole head, with a line feed for each CRLF.
    pub head: String,
    /// The body, if its length was given.
    pub body: Vec<u8>,
}

impl Request {
    /// Returns the value of the first field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let is_meant = |(known, _): &&(String, String)| known.eq_ignore_ascii_case(name);
        self.fields.iter().find(is_meant).map(|(_, value)| value.as_str())
    }

    /// Returns the range that is requested, cut to a file of this length.
    ///
    /// # Panics
    ///
    /// If it does not start with a number.
    #[must_use]
    pub fn range(&self, len: usize) -> Option<Range<usize>> {
        let (first, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let end = last.parse::<usize>().map_or(len, |last| len.min(last + 1));
        Some(first.parse().unwrap()..end)
    }

    fn read(reader: &mut impl BufRead) -> io::Result<Self> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let head = head.replace("\r\n", "\n");
        let mut words = head.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut request = Self { number: 0, method, path, fields, head, body: Vec::new() };
        let len = request.field("content-length").map_or(0, |len| len.parse().unwrap());
        request.body.resize(len, 0);
        reader.read_exact(&mut request.body)?;
        Ok(request)
    }
}

type Answer = dyn Fn(&Request, &mut TcpStream) -> io::Result<()> + Send + Sync;

/// A server, with a thread for each connection. Accepts no connection once it is dropped.
#[derive(Debug)]
pub struct Server {
    /// The address on which it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    is_over: AtomicBool,
}

impl Server {
    /// Starts a server on a port of loopback. A connection ends when an answer fails.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub fn start(
        answer: impl Fn(&Request, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let (here, answer): (_, Arc<Answer>) = (Arc::clone(&shared), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if here.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (here, answer) = (Arc::clone(&here), Arc::clone(&answer));
                thread::spawn(move || here.serve(stream, &*answer));
            }
        });
        Self { address, shared }
    }

    /// Returns the URL of a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests so far.
    ///
    /// # Panics
    ///
    /// If the server has panicked.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Accepts no more connections, and ends the others with their next requests.
    ///
    /// # Panics
    ///
    /// If connections are still accepted after [`crate::PATIENCE`].
    pub fn end(&self) {
        self.stop();
        wait_until("a server that is gone", || TcpStream::connect(self.address).is_err());
    }

    fn stop(&self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // The listener notices the end with the next connection, and is closed.
        let _ = TcpStream::connect(self.address);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream, answer: &Answer) {
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Ok(mut request) = Request::read(&mut reader) {
            {
                let mut requests = self.requests.lock().unwrap();
                request.number = requests.len();
                requests.push(request.clone());
            }
            let is_over = self.is_over.load(Ordering::Relaxed);
            if is_over || answer(&request, &mut stream).is_err() {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

/// Starts a server that lasts as long as the process, and returns its URL.
///
/// # Panics
///
/// As [`Server::start`] does.
pub fn serve_until_exit(
    answer: impl Fn(&Request, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> String {
    let server = Server::start(answer);
    let url = server.url("/");
    std::mem::forget(server);
    url
}

/// Ends the connection instead of answering further.
///
/// # Errors
///
/// Always.
pub fn close() -> io::Result<()> {
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// Writes text, with CRLF for each line feed.
///
/// # Errors
///
/// If the connection fails.
pub fn write_head(stream: &mut impl Write, text: &str) -> io::Result<()> {
    stream.write_all(text.replace('\n', "\r\n").as_bytes())
}

/// Writes a whole response: the status line and the fields, separated by line feeds, and the body
/// with its length; the response to a HEAD has no body.
///
/// # Errors
///
/// If the connection fails.
pub fn respond(
    request: &Request,
    stream: &mut impl Write,
    lines: &str,
    body: &[u8],
) -> io::Result<()> {
    write_head(stream, &format!("{lines}\nContent-Length: {}\n\n", body.len()))?;
    if request.method == "HEAD" { Ok(()) } else { stream.write_all(body) }
}

/// Returns the head of a correct response for a file of these bytes, without line feeds at its end,
/// and the range of bytes to send. `lines` are additional fields, each with a line feed.
#[must_use]
pub fn file_head(
    request: &Request,
    bytes: &[u8],
    tag: &str,
    lines: &str,
) -> (String, Range<usize>) {
    let total = bytes.len();
    let is_same = request.field("if-range").is_none_or(|given| given == tag);
    let (status, range) = match request.range(total).filter(|_| is_same) {
        Some(range) if range.start >= total => {
            let head = format!("416 No\nContent-Range: bytes */{total}\nContent-Length: 0");
            return (format!("HTTP/1.1 {head}"), 0..0);
        }
        Some(range) => {
            let (first, last) = (range.start, range.end - 1);
            (format!("206 Partial\nContent-Range: bytes {first}-{last}/{total}"), range)
        }
        None => ("200 OK".to_owned(), 0..total),
    };
    let head = format!("HTTP/1.1 {status}\nETag: {tag}\nAccept-Ranges: bytes\n{lines}");
    (format!("{head}Content-Length: {}", range.len()), range)
}
