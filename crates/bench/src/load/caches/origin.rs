//! The origin of caches: a server inside the bench that counts what it sends, at a limited rate.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::sendfile;
use underpass_engine::wait::lock;

/// The origin. Ended when dropped.
#[derive(Debug)]
pub(crate) struct CountingOrigin {
    pub(crate) address: SocketAddrV4,
    shared: Arc<OriginState>,
}

#[derive(Debug)]
struct OriginState {
    files: PathBuf,
    /// The bytes per second that all its connections send together.
    rate: AtomicU64,
    /// The earliest time at which the rate allows all bytes sent so far.
    due: Mutex<Instant>,
    bytes: AtomicU64,
    requests: AtomicU64,
    is_over: AtomicBool,
}

impl CountingOrigin {
    /// Begins to serve the files of a folder: `/x` and `/x/anything` are the file `x`.
    pub(crate) fn start(files: &Path, rate: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr()?.port());
        let shared = Arc::new(OriginState {
            files: files.to_owned(),
            rate: AtomicU64::new(rate),
            due: Mutex::new(Instant::now()),
            bytes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let here = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if here.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let here = Arc::clone(&here);
                // An error, as when a contender closes a connection, ends that connection only.
                std::thread::spawn(move || drop(here.serve(&stream)));
            }
        });
        Ok(Self { address, shared })
    }

    /// Sets how many bytes per second its connections send together.
    pub(crate) fn set_rate(&self, rate: u64) {
        self.shared.rate.store(rate, Ordering::Relaxed);
    }

    /// Returns the bytes of bodies that were sent so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Drop for CountingOrigin {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // A connection wakes the listener, which then sees the end.
        drop(TcpStream::connect(self.address));
    }
}

impl OriginState {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let Some(request) = read_request(&mut reader)? else { return Ok(()) };
            self.requests.fetch_add(1, Ordering::Relaxed);
            let name = request.path.trim_start_matches('/').split('/').next().unwrap_or_default();
            let file = File::open(self.files.join(name))?;
            let len = file.metadata()?.len();
            // Squid stores no response without a date.
            let date = Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT");
            let lines =
                format!("Date: {date}\r\nETag: \"{name}-{len}\"\r\nCache-Control: max-age=3600");
            let (status, range, more) = match request.range {
                Some((start, end)) => {
                    let end = end.map_or(len, |end| len.min(end + 1));
                    let field = format!("Content-Range: bytes {start}-{}/{len}\r\n", end - 1);
                    ("206 Partial Content", start..end, field)
                }
                None => ("200 OK", 0..len, "Accept-Ranges: bytes\r\n".to_owned()),
            };
            let size = range.end - range.start;
            let head =
                format!("HTTP/1.1 {status}\r\n{lines}\r\n{more}Content-Length: {size}\r\n\r\n");
            (&mut &*stream).write_all(head.as_bytes())?;
            if !request.is_head {
                self.send(&file, range, stream)?;
            }
        }
    }

    fn send(&self, file: &File, range: Range<u64>, stream: &TcpStream) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let step = STEP.min(range.end - at);
            self.wait(step);
            // They count before they are sent: a client that has them may read the count at once.
            self.bytes.fetch_add(step, Ordering::Relaxed);
            let sent = sendfile(stream, file, Some(&mut at), usize::try_from(step).unwrap_or(0));
            let bytes = sent.map_or(0, |sent| sent as u64);
            self.bytes.fetch_sub(step - bytes, Ordering::Relaxed);
            if sent? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Waits until this many bytes more may be sent.
    fn wait(&self, bytes: u64) {
        let due = {
            let mut due = lock(&self.due);
            // Unused bandwidth is lost, except for a moment.
            let begin = (*due).max(Instant::now().checked_sub(SLACK).unwrap_or(*due));
            *due = begin
                + Duration::from_secs_f64(bytes as f64 / self.rate.load(Ordering::Relaxed) as f64);
            *due
        };
        let early = due.saturating_duration_since(Instant::now());
        if early >= MIN_SLEEP {
            std::thread::sleep(early);
        }
    }
}

/// A request, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
struct OriginRequest {
    path: String,
    is_head: bool,
    range: Option<(u64, Option<u64>)>,
}

/// Reads a head; `None` at the end of the connection.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<OriginRequest>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ');
    let is_head = words.next() == Some("HEAD");
    let path = words.next().unwrap_or("/").to_owned();
    let mut range = None;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            return Ok(Some(OriginRequest { path, is_head, range }));
        }
        if let Some((start, end)) =
            line.strip_prefix("range: bytes=").and_then(|text| text.split_once('-'))
        {
            range = start.parse().ok().map(|start| (start, end.parse().ok()));
        }
    }
}

const STEP: u64 = 64 << 10;

/// Shorter waits are added to the next one.
const MIN_SLEEP: Duration = Duration::from_millis(1);

/// The delay up to which an origin may still catch up.
const SLACK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_far_as_it_matters() {
        let read = |text: &str| read_request(&mut text.as_bytes()).ok().flatten();
        let text = "GET /a/b HTTP/1.1\r\nHost: x\r\nRange: bytes=5-9\r\n\r\n";
        let expected =
            OriginRequest { path: "/a/b".into(), is_head: false, range: Some((5, Some(9))) };
        assert_eq!(read(text), Some(expected));
        let text = "HEAD / HTTP/1.1\r\nrange: bytes=5-\r\n\r\n";
        let expected = OriginRequest { path: "/".into(), is_head: true, range: Some((5, None)) };
        assert_eq!(read(text), Some(expected));
        assert_eq!(read("GET / HTTP/1.1\r\n"), None);
    }
}
