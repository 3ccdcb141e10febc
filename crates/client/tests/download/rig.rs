//! A server that follows a script, including misbehaviour, and a folder for the downloads.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use underpass_client::download::{
    DownloadEvent, DownloadFailed, DownloadOptions, DownloadOutcome, Downloader, Gauge, IfExists,
    Target,
};
use underpass_client::{Credentials, HttpClient, Proxies, TlsSetup, Url};
use underpass_engine::wait::MIN_RATE;
use underpass_testkit::http::{self, Request, file_head};

pub use underpass_testkit::http::{close as hang_up, write_head as say};

/// A server that answers each request by a closure; an error closes the connection.
pub struct Server {
    pub address: SocketAddr,
    server: http::Server,
}

impl Server {
    pub fn start(
        answer: impl Fn(&Request, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let server = http::Server::start(answer);
        Self { address: server.address, server }
    }

    /// A server of these bytes that does everything right.
    pub fn of(bytes: &Arc<Vec<u8>>) -> Self {
        let bytes = Arc::clone(bytes);
        Self::start(move |request, stream| give(request, stream, &bytes, TAG))
    }

    pub fn url(&self, path: &str) -> Url {
        Url::parse(&self.server.url(path)).unwrap()
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.server.requests()
    }
}

/// The entity tag of files that do not change.
pub const TAG: &str = "\"v1\"";

/// Returns the right head for a file of these bytes, and which of them follow.
pub fn head(request: &Request, bytes: &[u8], tag: &str) -> (String, Range<usize>) {
    let (head, range) = file_head(request, bytes, tag, "");
    (head + "\n\n", range)
}

/// Sends the right response for a file of these bytes.
pub fn give(
    request: &Request,
    stream: &mut TcpStream,
    bytes: &[u8],
    tag: &str,
) -> std::io::Result<()> {
    let (head, range) = head(request, bytes, tag);
    say(stream, &head)?;
    if request.method == "HEAD" { Ok(()) } else { stream.write_all(&bytes[range]) }
}

/// Returns `len` bytes in which no two offsets have the same pattern.
pub fn noise(len: usize) -> Arc<Vec<u8>> {
    Arc::new(underpass_testkit::noise(len))
}

/// A client for downloads, with its folder.
pub struct Client {
    pub folder: TempDir,
    pub options: DownloadOptions,
    pub if_exists: IfExists,
    pub headers: Vec<(String, String)>,
    pub credentials: Credentials,
    pub proxies: Proxies,
    pub tls: TlsSetup,
    pub connect_timeout: Duration,
    pub timeout: Duration,
    pub min_rate: u64,
    pub max_redirects: u32,
    pub gauge: Gauge,
    pub events: Mutex<Vec<String>>,
}

impl Client {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
            options: DownloadOptions::default(),
            if_exists: IfExists::Replace,
            headers: Vec::new(),
            credentials: Credentials::None,
            proxies: Proxies::default(),
            tls: TlsSetup::default(),
            connect_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(60),
            min_rate: MIN_RATE,
            max_redirects: 5,
            gauge: Gauge::default(),
            events: Mutex::default(),
        }
    }

    /// Creates a client with this number of connections.
    pub fn with(connections: u32) -> Self {
        let mut client = Self::new();
        client.options.connections = Some(connections);
        client
    }

    pub fn agent<'a>(&self, cancel: Option<&'a AtomicBool>) -> HttpClient<'a> {
        HttpClient {
            headers: self.headers.clone(),
            credentials: self.credentials.clone(),
            proxies: self.proxies.clone(),
            tls: self.tls.clone(),
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
            min_rate: self.min_rate,
            max_redirects: self.max_redirects,
            cancel,
            ..HttpClient::default()
        }
    }

    /// Downloads to a file named `file`.
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
        let downloader = Downloader::new(self.agent(cancel), self.options.clone());
        let report =
            |event: &DownloadEvent<'_>| self.events.lock().unwrap().push(format!("{event:?}"));
        downloader.fetch(url, &target, &self.gauge, &report)
    }

    /// Downloads these bytes inside the kernel, and checks that nothing else is left.
    #[track_caller]
    pub fn gets(&self, url: &Url, bytes: &[u8]) -> DownloadOutcome {
        let done = self.gets_anyhow(url, bytes);
        assert_eq!(done.report.user_space_bytes(), 0);
        done
    }

    /// Downloads these bytes, and checks that nothing else is left.
    #[track_caller]
    pub fn gets_anyhow(&self, url: &Url, bytes: &[u8]) -> DownloadOutcome {
        let done = self.get(url).unwrap();
        assert!(fs::read(self.path()).unwrap() == bytes, "other bytes");
        assert_eq!(self.names(), ["file"]);
        assert_eq!(done.size, bytes.len() as u64);
        done
    }

    /// Checks that the download fails and leaves nothing.
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

    /// Returns the number of events of this kind.
    pub fn events(&self, what: &str) -> usize {
        self.events.lock().unwrap().iter().filter(|event| event.starts_with(what)).count()
    }
}
