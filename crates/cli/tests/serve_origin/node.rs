//! A node in front of an origin, and a client that notices each byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::rig::{Running, folder, limited, traced, underpass, until};

/// A node, with a folder of its own.
pub struct Node {
    pub cache: TempDir,
    pub server: Running,
}

impl Node {
    pub fn new(origin: &str, args: &[&str]) -> Self {
        Self::on(folder(), origin, args)
    }

    /// A node under strace with these options.
    pub fn traced_on(cache: TempDir, strace: &[&str], origin: &str, args: &[&str]) -> Self {
        let command = traced(Path::new("/dev/null"), strace);
        let server = start(command, cache.path(), origin, args);
        Self { cache, server }
    }

    /// A node with a limit of the shell.
    #[allow(dead_code)] // not in all tests with nodes
    pub fn limited(limit: &str, origin: &str) -> Self {
        let cache = folder();
        let server = start(limited(limit), cache.path(), origin, &[]);
        Self { cache, server }
    }

    /// A node on the folder of another one.
    pub fn on(cache: TempDir, origin: &str, args: &[&str]) -> Self {
        let server = start(underpass(), cache.path(), origin, args);
        Self { cache, server }
    }

    /// A node on a folder that somebody else removes.
    #[allow(dead_code)] // not in all tests with nodes
    pub fn at(cache: &Path, origin: &str, args: &[&str]) -> Self {
        Self { cache: folder(), server: start(underpass(), cache, origin, args) }
    }

    /// Ends the node at once, and starts another one on its folder.
    pub fn again(mut self, origin: &str, args: &[&str]) -> Self {
        self.server.child.kill().unwrap();
        self.server.child.wait().unwrap();
        Self::on(self.cache, origin, args)
    }

    /// The address at which it serves, as the origin of another node.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address())
    }

    pub fn address(&self) -> &str {
        self.server.host()
    }

    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[])
    }

    pub fn range(&self, path: &str, range: &str) -> Reply {
        self.ask("GET", path, &[&format!("Range: bytes={range}")])
    }

    pub fn ask(&self, method: &str, path: &str, lines: &[&str]) -> Reply {
        self.client(method, path, lines).finish()
    }

    /// A client that has sent its request.
    pub fn client(&self, method: &str, path: &str, lines: &[&str]) -> Client {
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        lines.iter().for_each(|line| head += &format!("{line}\r\n"));
        self.sender(&head)
    }

    /// A client of HTTP/1.0 that has sent its request.
    #[allow(dead_code)] // not in all tests with nodes
    pub fn old_client(&self, path: &str) -> Client {
        self.sender(&format!("GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n"))
    }

    fn sender(&self, lines: &str) -> Client {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.write_all(format!("{lines}\r\n").as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        Client { stream, bytes: Vec::new() }
    }

    /// A metric of the cache.
    pub fn metric(&self, name: &str) -> u64 {
        let text = String::from_utf8(self.get("/.underpass/metrics").body).unwrap();
        let line =
            text.lines().find_map(|line| line.strip_prefix(&format!("underpass_cache_{name} ")));
        line.unwrap().parse().unwrap()
    }

    /// Ends the node, and returns the lines of its log about requests for objects.
    pub fn log(self) -> Vec<Value> {
        self.server.signal("TERM");
        let finished = self.server.finish();
        let lines = finished.text();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| !line["target"].as_str().unwrap().starts_with("/.under")).collect()
    }
}

fn start(mut command: Command, cache: &Path, origin: &str, args: &[&str]) -> Running {
    command.args(["serve", "--port", "0", "--log-format", "json", "--origin", origin, "--cache"]);
    command.arg(cache).args(args);
    if !args.contains(&"--cache-free") {
        command.args(["--cache-free", "0"]);
    }
    Running::listening(command)
}

/// A client in the middle of a response.
pub struct Client {
    stream: TcpStream,
    bytes: Vec<u8>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Closed,
    Reset,
}

/// What a client got.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    pub end: End,
}

impl Client {
    /// Ends what the client says, as one does that leaves.
    pub fn leave(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Reads until the body has at least this many bytes.
    pub fn read_body(&mut self, len: usize) {
        let mut buffer = vec![0; 64 << 10];
        while self.body_len().is_none_or(|have| have < len) {
            let read = match self.stream.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.unwrap(),
            };
            let text = || String::from_utf8_lossy(&self.bytes).into_owned();
            assert!(read > 0, "the end came early: {}", text());
            self.bytes.extend_from_slice(&buffer[..read]);
        }
    }

    /// Reads until the head is there.
    pub fn read_head(&mut self) {
        self.read_body(0);
    }

    fn body_len(&self) -> Option<usize> {
        let end = self.bytes.windows(4).position(|it| it == b"\r\n\r\n")?;
        Some(self.bytes.len() - end - 4)
    }

    /// Reads to the end.
    pub fn finish(mut self) -> Reply {
        let mut buffer = vec![0; 64 << 10];
        let end = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break End::Closed,
                Ok(read) => self.bytes.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break End::Reset,
                Err(error) => panic!("{error}"),
            }
        };
        let at = self.bytes.windows(4).position(|it| it == b"\r\n\r\n");
        let Some(at) = at else {
            return Reply { status: 0, head: String::new(), body: Vec::new(), end };
        };
        let head = String::from_utf8(self.bytes[..at].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: self.bytes.split_off(at + 4), end };
        if reply.field("transfer-encoding") == Some("chunked") {
            let (body, is_whole) = unchunk(&reply.body);
            assert!(is_whole || end == End::Reset, "a part in chunks that looks whole");
            reply.body = body;
        }
        reply
    }
}

/// The data of chunks, and whether the last one is there.
fn unchunk(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = bytes.windows(2).position(|it| it == b"\r\n") else { return (body, false) };
        let len = usize::from_str_radix(str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        let data = &bytes[end + 2..];
        if len == 0 {
            return (body, data == b"\r\n");
        }
        body.extend_from_slice(&data[..len.min(data.len())]);
        if data.len() < len + 2 {
            return (body, false);
        }
        bytes = &data[len + 2..];
    }
}

impl Reply {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// What the cache says it did.
    pub fn cache(&self) -> &str {
        self.field("cache-status").unwrap_or_default()
    }

    #[track_caller]
    pub fn is(&self, status: u16, body: &[u8]) {
        assert_eq!((self.status, self.end), (status, End::Closed), "{}", self.head);
        assert!(self.body == body, "{} bytes are not the {} expected", self.body.len(), body.len());
    }
}

/// Waits until the node has stored this many bytes.
pub fn until_stored(node: &Node, bytes: u64) {
    until("bytes in the cache", || node.metric("used_bytes") >= bytes);
}
