//! Fixtures for tests of a transfer: a temporary folder, bytes that are never zero, a TCP peer
//! whose reader can be paused, and shells that write from another process.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt;
use tempfile::TempDir;
use underpass_engine::{Error, Options, Report, Sink, Source, Transfer};

/// A folder of one test, removed with its contents.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(underpass_testkit::folder())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Creates a file of `len` bytes, none of them zero, and closes it.
    pub(crate) fn file(&self, name: &str, len: usize) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, pattern(len)).unwrap();
        underpass_testkit::until_closed_by_writers(&path);
        path
    }
}

pub(crate) use underpass_testkit::{pattern, wait_until};

/// Returns the sending and the receiving end of a TCP connection with buffers so small that a
/// transfer cannot run ahead.
pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    sockopt::set_socket_recv_buffer_size(&listener, BUFFER).unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    sockopt::set_socket_send_buffer_size(&sender, BUFFER).unwrap();
    let reader = listener.accept().unwrap().0;
    reader.set_read_timeout(Some(PATIENCE)).unwrap();
    (sender, reader)
}

const BUFFER: usize = 32 << 10;

/// Far longer than any wait here; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A transfer over TCP that cannot proceed before its reader does.
pub(crate) struct Held {
    pub(crate) reader: TcpStream,
    sender: JoinHandle<Result<Report, Error>>,
    /// The bytes read so far.
    pub(crate) bytes: Vec<u8>,
}

impl Held {
    /// Begins to send a file on another thread, which closes the connection at the end.
    pub(crate) fn send(file: &Path, options: Options<'static>) -> Self {
        Self::send_through(file, options, BUFFER)
    }

    /// Does the same as [`send`](Self::send), with a send buffer of this size.
    pub(crate) fn send_through(file: &Path, options: Options<'static>, buffer: usize) -> Self {
        let file = File::open(file).unwrap();
        let (sender, reader) = tcp_pair();
        sockopt::set_socket_send_buffer_size(&sender, buffer).unwrap();
        let sender = thread::spawn(move || {
            let source = Source::of(&file).unwrap();
            Transfer::new(source, Sink::of(&sender).unwrap()).options(options).run()
        });
        Self { reader, sender, bytes: Vec::new() }
    }

    /// Reads this many bytes, after which the transfer is in progress.
    pub(crate) fn read(&mut self, len: usize) {
        let from = self.bytes.len();
        self.bytes.resize(from + len, 0);
        self.reader.read_exact(&mut self.bytes[from..]).unwrap();
    }

    /// Reads to the end, and returns the results of the peer and the sender.
    pub(crate) fn finish(mut self) -> (io::Result<Vec<u8>>, Result<Report, Error>) {
        let seen = self.reader.read_to_end(&mut self.bytes);
        let outcome = self.sender.join().unwrap();
        (seen.map(|_| self.bytes), outcome)
    }

    /// Reads the rest only after the sender is done.
    pub(crate) fn finish_late(mut self) -> (io::Result<Vec<u8>>, Result<Report, Error>) {
        let outcome = self.sender.join().unwrap();
        let seen = self.reader.read_to_end(&mut self.bytes);
        (seen.map(|_| self.bytes), outcome)
    }

    /// Closes the peer's end without reading on, and returns the sender's result.
    pub(crate) fn hang_up(self) -> Result<Report, Error> {
        drop(self.reader);
        self.sender.join().unwrap()
    }
}

/// Asserts that the peer's connection was reset.
pub(crate) fn assert_reset<T: std::fmt::Debug>(seen: &io::Result<T>) {
    let kind = seen.as_ref().map_err(io::Error::kind).map(|_| "a clean end");
    assert_eq!(kind, Err(io::ErrorKind::ConnectionReset));
}

/// Starts a shell in which `$1`, `$2` and so on are these paths.
pub(crate) fn shell(script: &str, paths: &[&Path]) -> Shell {
    let child = Command::new("sh")
        .args(["-c", script, "sh"])
        .args(paths)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Shell(child)
}

/// A process that does not outlive its test.
pub(crate) struct Shell(pub(crate) Child);

impl Shell {
    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits until the shell ends, which must be with success.
    pub(crate) fn succeed(mut self) {
        wait_until("the shell ends", || !self.is_running());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
