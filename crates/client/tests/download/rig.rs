//! A server that does what it is told, misbehaviour too, and a folder for what is fetched.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use underpass_client::download::{
    DownloadEvent, DownloadFailed, DownloadOptions, DownloadOutcome, Downloader, Gauge, IfExists,
    Target,
};
use underpass_client::{Credentials, HttpClient, Proxies, TlsSetup, Url};

/// A request that came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// How many came before it, over all connections.
    pub number: usize,
    pub head: String,
}

impl Asked {
    pub fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, it)| it)
    }

    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    /// The range asked for, cut to a file of this length.
    pub fn range(&self, len: usize) -> Option<std::ops::Range<usize>> {
        let (first, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let first: usize = first.parse().unwrap();
        let last: usize = if last.is_empty() { len - 1 } else { last.parse().unwrap() };
        Some(first..len.min(last + 1))
    }
}

type Answers = dyn Fn(&Asked, &mut TcpStream) -> std::io::Result<()> + Send + Sync;

/// A server. It answers each request as it was told; a failure ends the connection.
pub struct Server {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    is_over: Arc<AtomicBool>,
}

impl Server {
    pub fn start(
        answer: impl Fn(&Asked, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, is_over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let answer: Arc<Answers> = Arc::new(answer);
        let (log, over) = (Arc::clone(&asked), Arc::clone(&is_over));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let (stream, log, answer) = (stream.unwrap(), Arc::clone(&log), answer.clone());
                std::thread::spawn(move || serve(stream, &log, &*answer));
            }
        });
        Self { address, asked, is_over }
    }

    /// A server of these bytes that does everything right.
    pub fn of(bytes: &Arc<Vec<u8>>) -> Self {
        let bytes = Arc::clone(bytes);
        Self::start(move |asked, stream| give(asked, stream, &bytes, TAG))
    }

    pub fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.address)).unwrap()
    }

    /// What came so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Only to wake it up.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, log: &Mutex<Vec<Asked>>, answer: &Answers) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line == "\r\n" => break,
                Ok(_) => head += &line.replace("\r\n", "\n"),
            }
        }
        let asked = {
            let mut log = log.lock().unwrap();
            let number = log.len();
            log.push(Asked { number, head });
            log.last().unwrap().clone()
        };
        if answer(&asked, &mut stream).is_err() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

/// The entity tag of files that do not change.
pub const TAG: &str = "\"v1\"";

/// Ends the connection here.
pub fn hang_up() -> std::io::Result<()> {
    Err(std::io::ErrorKind::Other.into())
}

/// Says this, with CRLF for each LF.
pub fn say(stream: &mut TcpStream, head: &str) -> std::io::Result<()> {
    stream.write_all(head.replace('\n', "\r\n").as_bytes())
}

/// The head of the right answer for a file of these bytes, and which of them follow.
pub fn head(asked: &Asked, bytes: &[u8], tag: &str) -> (String, std::ops::Range<usize>) {
    let is_same = asked.field("if-range").is_none_or(|given| given == tag);
    let facts = format!("ETag: {tag}\nAccept-Ranges: bytes\n");
    match asked.range(bytes.len()).filter(|_| is_same) {
        Some(range) if range.start >= bytes.len() => {
            let total = bytes.len();
            let head = format!("416 x\nContent-Range: bytes */{total}\nContent-Length: 0\n\n");
            (format!("HTTP/1.1 {head}"), 0..0)
        }
        Some(range) => {
            let (first, last, total) = (range.start, range.end - 1, bytes.len());
            let len = range.len();
            let head = format!(
                "206 x\n{facts}Content-Range: bytes {first}-{last}/{total}\nContent-Length: {len}\n\n"
            );
            (format!("HTTP/1.1 {head}"), range)
        }
        None => {
            let len = bytes.len();
            (format!("HTTP/1.1 200 OK\n{facts}Content-Length: {len}\n\n"), 0..len)
        }
    }
}

/// The right answer for a file of these bytes.
pub fn give(asked: &Asked, stream: &mut TcpStream, bytes: &[u8], tag: &str) -> std::io::Result<()> {
    let (head, range) = head(asked, bytes, tag);
    say(stream, &head)?;
    if asked.head.starts_with("HEAD") { Ok(()) } else { stream.write_all(&bytes[range]) }
}

/// `len` bytes that no two offsets share a pattern of.
pub fn noise(len: usize) -> Arc<Vec<u8>> {
    Arc::new(underpass_testkit::noise(len))
}

/// A client that downloads.
pub struct Client {
    pub folder: TempDir,
    pub wishes: DownloadOptions,
    pub if_exists: IfExists,
    pub headers: Vec<(String, String)>,
    pub credentials: Credentials,
    pub proxies: Proxies,
    pub tls: TlsSetup,
    pub connect_timeout: Duration,
    pub timeout: Duration,
    pub max_redirects: u32,
    pub gauge: Gauge,
    pub told: Mutex<Vec<String>>,
}

impl Client {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
            wishes: DownloadOptions::default(),
            if_exists: IfExists::Replace,
            headers: Vec::new(),
            credentials: Credentials::None,
            proxies: Proxies::default(),
            tls: TlsSetup::default(),
            connect_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(60),
            max_redirects: 5,
            gauge: Gauge::default(),
            told: Mutex::default(),
        }
    }

    /// With so many connections.
    pub fn with(connections: u32) -> Self {
        let mut client = Self::new();
        client.wishes.connections = Some(connections);
        client
    }

    pub fn agent<'a>(&self, cancel: Option<&'a AtomicBool>) -> HttpClient<'a> {
        HttpClient {
            user_agent: "test".to_owned(),
            headers: self.headers.clone(),
            credentials: self.credentials.clone(),
            proxies: self.proxies.clone(),
            tls: self.tls.clone(),
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
            deadline: None,
            max_redirects: self.max_redirects,
            cancel,
        }
    }

    /// Fetches to a file of the name `file`.
    pub fn get(&self, url: &Url) -> Result<DownloadOutcome, DownloadFailed> {
        self.get_until(url, None)
    }

    pub fn get_until(
        &self,
        url: &Url,
        cancel: Option<&AtomicBool>,
    ) -> Result<DownloadOutcome, DownloadFailed> {
        let folder: OwnedFd = File::open(self.folder.path()).unwrap().into();
        let name = OsStr::new("file");
        let target = Target::Named { folder: &folder, name, if_exists: self.if_exists };
        let downloader = Downloader::new(self.agent(cancel), self.wishes.clone());
        let report =
            |event: &DownloadEvent<'_>| self.told.lock().unwrap().push(format!("{event:?}"));
        downloader.fetch(url, &target, &self.gauge, &report)
    }

    /// Fetches these bytes, and leaves nothing else.
    #[track_caller]
    pub fn gets(&self, url: &Url, bytes: &[u8]) -> DownloadOutcome {
        let done = self.get(url).unwrap();
        assert!(fs::read(self.path()).unwrap() == bytes, "other bytes");
        assert_eq!(self.names(), ["file"]);
        assert_eq!(done.size, bytes.len() as u64);
        assert_eq!(done.report.user_space_bytes(), 0);
        done
    }

    /// Fails and leaves nothing.
    #[track_caller]
    pub fn fails(&self, url: &Url, words: &str) -> DownloadFailed {
        let failed = self.get(url).unwrap_err();
        let text = failed.to_string();
        assert!(text.contains(words), "'{words}' is not in: {text}");
        assert_eq!(failed.kept, None);
        assert_eq!(self.names(), [""; 0]);
        failed
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("file")
    }

    pub fn names(&self) -> Vec<String> {
        underpass_testkit::names(self.folder.path())
    }

    /// How often it was told of this.
    pub fn told(&self, what: &str) -> usize {
        self.told.lock().unwrap().iter().filter(|told| told.starts_with(what)).count()
    }
}
