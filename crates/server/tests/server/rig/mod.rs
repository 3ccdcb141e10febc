//! The shared parts of these tests: a server with a folder, and a client that checks responses.

#![allow(unreachable_pub)] // as in the other rigs

mod secure;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use rustls::ClientConfig;
use tempfile::TempDir;
use underpass_server::access_log::LogFormat;
use underpass_server::auth::Access;
use underpass_server::{
    Address, Changes, Control, ServeError, Server, ServerSummary, Settings, SiteSettings,
};

pub use secure::{Certificate, Secure, Usable, gets_close_notify, over};
pub use underpass_testkit::http::{Client, Reply, request};
pub(crate) use underpass_testkit::mounts::{FileSystem, Mounted};
pub(crate) use underpass_testkit::{is_root, skip};

/// A folder and the settings of its server, before it starts.
pub struct Site {
    folder: TempDir,
    pub settings: Settings,
    pub address: Address,
    /// How clients speak TLS, if the server does.
    client: Option<ClientConfig>,
}

impl Site {
    /// An empty folder with the settings of the command line, but for one worker and JSON lines.
    pub fn new() -> Self {
        let folder = folder();
        let settings = settings(folder.path());
        let address = Address::Tcp(([127, 0, 0, 1], 0).into());
        Self { folder, settings, address, client: None }
    }

    /// A folder with these files.
    pub fn of(files: &[(&str, &[u8])]) -> Self {
        let site = Self::new();
        files.iter().for_each(|(name, bytes)| site.write(name, bytes));
        site
    }

    /// Writes a file, and the folders that it is in.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        underpass_testkit::until_closed_by_writers(&path);
    }

    /// The path of a name in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Changes the settings.
    pub fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Changes the settings of its only site.
    pub fn with_site(self, change: impl FnOnce(&mut SiteSettings)) -> Self {
        self.with(|settings| change(&mut settings.sites[0]))
    }

    /// Sets the access rules.
    pub fn auth(self, rules: &[&str]) -> Self {
        let rules: Vec<_> = rules.iter().map(|rule| (*rule).to_owned()).collect();
        self.with_site(|site| site.access = Access::parse(&rules).unwrap())
    }

    /// Binds and serves on its own thread.
    pub fn start(self) -> Running {
        self.try_start().unwrap()
    }

    /// Starts a server that may fail to start.
    pub fn try_start(self) -> Result<Running, ServeError> {
        let Self { folder, settings, address, client } = self;
        let server = Server::bind(settings, &[address], Vec::new())?;
        let (address, redirects) = (server.addresses().remove(0), server.redirects());
        let control = Control::new();
        let (lines, notes) = (Lines::default(), Lines::default());
        let (log, log_notes) = (Arc::clone(&lines), Arc::clone(&notes));
        let remote = control.clone();
        let thread = thread::spawn(move || {
            let log = move |line: &[u8]| log.lock().unwrap().push(text(line));
            let note = move |note| log_notes.lock().unwrap().push(format!("{note:?}"));
            server.run(remote, log, note).unwrap()
        });
        let thread = Some(thread);
        Ok(Running { folder, address, redirects, client, control, lines, notes, thread })
    }
}

type Lines = Arc<Mutex<Vec<String>>>;

/// A server that serves until it is dropped.
pub struct Running {
    folder: TempDir,
    /// As the server reports it: `127.0.0.1:5000` or `unix:/path`.
    pub address: String,
    /// The addresses that redirect clients to TLS.
    pub redirects: Vec<String>,
    client: Option<ClientConfig>,
    pub control: Control,
    lines: Lines,
    notes: Lines,
    thread: Option<JoinHandle<ServerSummary>>,
}

impl Running {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn socket(&self) -> SocketAddr {
        self.address.parse().unwrap()
    }

    pub fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.socket()).unwrap())
    }

    /// A connection from another address of loopback.
    pub fn connect_from(&self, address: Ipv4Addr) -> Client {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((address, 0))).unwrap();
        connect(&socket, &self.socket()).unwrap();
        Client::new(TcpStream::from(socket))
    }

    /// A connection that takes little before it is read from.
    pub fn connect_narrow(&self) -> Client {
        Client::new(narrow(self.socket(), 32 << 10))
    }

    /// The reply to a GET on its own connection.
    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[])
    }

    /// The reply to a request with these fields, on its own connection, with TLS if the server
    /// speaks it.
    pub fn ask(&self, verb: &str, path: &str, fields: &[&str]) -> Reply {
        if self.client.is_some() {
            return self.secure().ask(verb, path, fields);
        }
        self.connect().ask(verb, path, fields)
    }

    /// The lines of the access log so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Holds up the worker that writes the next line of the access log.
    pub fn hold_up_log(&self) -> impl Drop {
        self.lines.lock().unwrap()
    }

    /// Waits for a line of the access log that contains this.
    pub fn line(&self, part: &str) -> String {
        wait_for("the line", || self.lines().into_iter().find(|line| line.contains(part)))
    }

    /// The same, as JSON.
    pub fn record(&self, part: &str) -> serde_json::Value {
        serde_json::from_str(&self.line(part)).unwrap()
    }

    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap().clone()
    }

    /// The value of one sample of the metrics, 0 if there is none.
    pub fn metric(&self, sample: &str) -> f64 {
        let text = String::from_utf8(self.get("/.underpass/metrics").body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("underpass_{sample} ")));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits for its end, which was requested before.
    pub fn finish(mut self) -> ServerSummary {
        self.thread.take().unwrap().join().unwrap()
    }

    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the server panicked");
        }
    }
}

/// A connection whose receive buffer was of this size from the beginning.
pub fn narrow(address: SocketAddr, buffer: usize) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, buffer).unwrap();
    connect(&socket, &address).unwrap();
    socket.into()
}

/// The settings of the command line.
pub fn settings(root: &Path) -> Settings {
    let site = SiteSettings { changes: Changes::default(), ..SiteSettings::new(root.to_owned()) };
    Settings {
        sites: vec![site],
        max_connections: 1000,
        timeout: PATIENCE,
        log: Some(LogFormat::Json),
        drain: PATIENCE,
        ..Settings::new(root.to_owned())
    }
}

pub use underpass_testkit::{folder, pattern};

/// Gives a file a modification time so long ago that it counts as not written to; its ctime is the
/// current time.
pub fn age(path: &Path, seconds: u64) {
    let then = std::time::SystemTime::now() - Duration::from_secs(seconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

/// Far longer than anything here takes; a test that waits for it has failed.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Polls every few milliseconds until there is a value.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Polls every few milliseconds until it is true.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Threads of this process with this name, of the servers of all tests.
pub fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|comm| comm.trim_end() == name).count()
}
