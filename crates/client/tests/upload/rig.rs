//! The common parts of these tests: servers that follow a script, and an upload to them.

#![allow(unreachable_pub)] // as in the other rigs

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use underpass_client::upload::{
    Condition, SendOptions, Upload, UploadEvent, UploadFailed, UploadOutcome, upload,
};
use underpass_client::{Credentials, HttpClient, TlsSetup, Url};
use underpass_engine::{Integrity, Report, Source};

pub use underpass_testkit::noise;

/// One connection of a scripted server.
pub struct Conn {
    stream: TcpStream,
}

impl Conn {
    /// Reads a head, including the blank line, as text.
    pub fn head(&mut self) -> String {
        self.read_to("\r\n\r\n")
    }

    /// Reads up to and including these bytes, and none after them.
    fn read_to(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        let mut byte = [0];
        while !text.ends_with(end.as_bytes()) && self.stream.read(&mut byte).unwrap() > 0 {
            text.push(byte[0]);
        }
        String::from_utf8(text).unwrap()
    }

    /// Reads exactly `len` bytes.
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Reads exactly `len` bytes; returns `false` if the client has left.
    pub fn try_take(&mut self, len: usize) -> bool {
        self.stream.read_exact(&mut vec![0; len]).is_ok()
    }

    /// Reads a head, sends `100 Continue`, and reads exactly `len` bytes of the body.
    pub fn head_and_body(&mut self, len: usize) -> Vec<u8> {
        self.head();
        self.say_continue();
        self.take(len)
    }

    /// Reads a body, which must equal `expected`, and answers that it was stored.
    #[track_caller]
    pub fn accept(&mut self, expected: &[u8]) {
        assert!(self.take(expected.len()) == expected);
        self.answer("201 Created", &[]);
    }

    /// Reads all chunks.
    pub fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.read_to("\r\n");
            let len = usize::from_str_radix(line.trim(), 16).unwrap();
            body.extend(self.take(len));
            assert_eq!(self.take(2), b"\r\n");
            if len == 0 {
                return body;
            }
        }
    }

    /// Reads until the end; returns whether the client closed the connection properly.
    pub fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        let outcome = self.stream.read_to_end(&mut bytes);
        (bytes, outcome.is_ok())
    }

    /// Waits without reading until the client has left.
    pub fn wait_for_the_end(&mut self) {
        use rustix::event::{PollFd, PollFlags, poll};
        poll(&mut [PollFd::new(&self.stream, PollFlags::RDHUP)], None).unwrap();
    }

    pub fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    pub fn say_continue(&mut self) {
        self.say("HTTP/1.1 100 Continue\r\n\r\n");
    }

    /// Sends a text; returns `false` if the client has left.
    pub fn try_say(&mut self, text: &str) -> bool {
        self.stream.write_all(text.as_bytes()).is_ok()
    }

    /// Sends a response without a body.
    pub fn answer(&mut self, status: &str, fields: &[&str]) {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        self.say(&format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n{fields}\r\n"));
    }

    /// Sends a plain-text response.
    pub fn refuse(&mut self, status: &str, detail: &str) {
        let len = detail.len();
        let fields = format!("Content-Type: text/plain\r\nContent-Length: {len}\r\n");
        self.say(&format!("HTTP/1.1 {status}\r\n{fields}Connection: close\r\n\r\n{detail}"));
    }

    /// Resets the connection, as after a crash.
    pub fn reset(self) {
        underpass_engine::socket::arm_reset(&self.stream).unwrap();
    }

    /// Shuts down sending, but not receiving.
    pub fn fall_silent(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

type Script = Box<dyn FnOnce(Conn) + Send>;

/// A server whose connections follow scripts, one after the other.
pub struct Scripted {
    pub address: String,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Accepts as many connections as there are scripts, and refuses later ones.
    pub fn new(scripts: Vec<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let thread = std::thread::spawn(move || {
            for script in scripts {
                let (stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                script(Conn { stream });
            }
        });
        Self { address, thread: Some(thread) }
    }

    pub fn one(script: impl FnOnce(Conn) + Send + 'static) -> Self {
        Self::new(vec![Box::new(script)])
    }

    pub fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.address)).unwrap()
    }

    /// Leaves it running without waiting for the rest of its scripts.
    pub fn abandon(mut self) {
        self.thread = None;
    }
}

impl Drop for Scripted {
    /// Waits for the end of the scripts, all of whose checks must have passed.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take_if(|_| !std::thread::panicking()) {
            thread.join().unwrap();
        }
    }
}

/// Boxes a script.
pub fn script(script: impl FnOnce(Conn) + Send + 'static) -> Script {
    Box::new(script)
}

/// A file to send.
pub struct Sample {
    pub folder: TempDir,
    pub bytes: Vec<u8>,
}

impl Sample {
    pub fn of(len: usize) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let bytes = noise(len);
        std::fs::write(folder.path().join("sample"), &bytes).unwrap();
        Self { folder, bytes }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("sample")
    }

    pub fn journal(&self) -> PathBuf {
        self.folder.path().join("state/journal.json")
    }

    /// Uploads it without a journal.
    pub fn put(&self, url: &Url) -> Outcome {
        self.put_with(url, |_| {})
    }

    /// Uploads it with a journal.
    pub fn put_resumably(&self, url: &Url) -> Outcome {
        let journal = self.journal();
        put(&File::open(self.path()).unwrap(), url, |options| options.journal = Some(journal))
    }

    pub fn put_with(&self, url: &Url, change: impl FnOnce(&mut UploadOptions)) -> Outcome {
        put(&File::open(self.path()).unwrap(), url, change)
    }
}

/// The options in which uploads differ.
pub struct UploadOptions {
    pub journal: Option<PathBuf>,
    pub fields: Vec<(&'static str, &'static str)>,
    pub condition: Condition<'static>,
    pub timeout: Duration,
    pub min_rate: u64,
    pub retries: u32,
    pub user: Option<(&'static str, &'static str)>,
    pub tls: TlsSetup,
    /// Called with the number of bytes sent so far.
    pub watch: Box<dyn FnMut(u64) + Send>,
}

/// The result of an upload, and its events.
pub struct Outcome {
    pub result: Result<UploadOutcome, UploadFailed>,
    pub events: Vec<String>,
}

impl Outcome {
    #[track_caller]
    pub fn done(self) -> UploadOutcome {
        self.result.unwrap_or_else(|failed| panic!("{}: {:?}", failed.error, self.events))
    }

    #[track_caller]
    pub fn failed(self) -> UploadFailed {
        self.result.unwrap_err()
    }

    /// Returns the status with which the server refused it.
    #[track_caller]
    pub fn refused(self) -> (u16, String) {
        let error = self.failed().error;
        (error.status().unwrap_or_else(|| panic!("{error}")), error.to_string())
    }
}

/// Uploads a file or stream.
pub fn put(file: &File, url: &Url, change: impl FnOnce(&mut UploadOptions)) -> Outcome {
    let mut options = UploadOptions {
        journal: None,
        fields: Vec::new(),
        condition: Condition::None,
        timeout: PATIENCE,
        min_rate: 0,
        retries: 2,
        user: None,
        tls: TlsSetup::default(),
        watch: Box::new(|_| {}),
    };
    change(&mut options);
    let credentials = options.user.map_or(Credentials::None, |(user, password)| {
        Credentials::Basic { user: user.to_owned(), password: password.to_owned() }
    });
    let agent = HttpClient {
        credentials,
        tls: options.tls.clone(),
        connect_timeout: PATIENCE,
        timeout: options.timeout,
        min_rate: options.min_rate,
        max_redirects: 5,
        ..HttpClient::default()
    };
    let source = Source::of(file).unwrap();
    let what = Upload {
        source: &source,
        fields: &options.fields,
        condition: options.condition,
        options: SendOptions { integrity: Integrity::Detect, ..SendOptions::default() },
        journal: options.journal.as_deref(),
        retries: options.retries,
    };
    let mut events = Vec::new();
    let mut report = |event: &UploadEvent<'_>| match event {
        UploadEvent::Progress(progress) => (options.watch)(progress.bytes),
        UploadEvent::Resumed { at } => events.push(format!("resumed at {at}")),
        UploadEvent::StartedOver { reason } => events.push(format!("started over: {reason}")),
        UploadEvent::Retrying { error, resumes, .. } => {
            events.push(format!("again ({resumes}): {error}"))
        }
        UploadEvent::Redirected { to } => events.push(format!("redirected to {to}")),
        UploadEvent::PartsLeft { upload, .. } => events.push(format!("parts left of {upload}")),
    };
    let result = upload(&agent, &what, url, None, &mut report).map(|(done, _)| done);
    Outcome { result, events }
}

/// Returns the number of payload bytes that were moved.
pub fn payload(report: &Report) -> u64 {
    report.bytes() - report.memory().bytes
}

/// Returns the value of a field in a head.
pub fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Longer than any step of these tests takes.
pub const PATIENCE: Duration = Duration::from_secs(20);
