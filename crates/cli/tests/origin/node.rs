//! A node in front of an origin, and its clients.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

#[allow(unused_imports)] // not in all tests with nodes
pub use underpass_testkit::http::{Client, End, Reply};

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

    /// A node on a folder that the caller removes.
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
        let mut client = Client::new(self.server.connect());
        client.send(format!("{lines}\r\n"));
        client
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

/// Waits until the node has stored this many bytes.
pub fn until_stored(node: &Node, bytes: u64) {
    until("bytes in the cache", || node.metric("used_bytes") >= bytes);
}
