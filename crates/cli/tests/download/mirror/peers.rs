//! The programs that files are fetched from and sent to, and their requests.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::rig::{folder, free_port, has, nginx, underpass, until};

/// A server with a log. Ended when dropped.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    child: Child,
    pub(crate) url: String,
    state: TempDir,
}

impl Peer {
    fn start(name: &'static str, command: impl FnOnce(u16, &Path) -> Command) -> Self {
        let port = free_port();
        let state = folder();
        let mut command = command(port, state.path());
        let log = fs::File::create(state.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        until("a server that answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let url = format!("http://127.0.0.1:{port}/");
        Self { name, child, url, state }
    }

    /// Our server, which takes uploads too.
    pub(crate) fn ours(root: &Path) -> Self {
        Self::start("underpass", |port, _| {
            let mut command = underpass();
            command.args(["serve", "--allow-upload", "--allow-delete", "-p", &port.to_string()]);
            command.args(["-b", "127.0.0.1"]).arg(root);
            command
        })
    }

    /// nginx with listings as `json` or `html`, and its own DAV methods.
    pub(crate) fn nginx(root: &Path, format: &str) -> Option<Self> {
        has("nginx").then(|| {
            Self::start("nginx", |port, state| {
                let http = format!(
                    "server {{ listen 127.0.0.1:{port}; root {root}; access_log /dev/stderr;\n\
                     autoindex on; autoindex_format {format}; client_max_body_size 0;\n\
                     dav_methods PUT DELETE MKCOL; }}",
                    root = root.display()
                );
                nginx::command("nginx", &nginx::config(state, &http))
            })
        })
    }

    /// Python's `http.server`.
    pub(crate) fn python(root: &Path) -> Option<Self> {
        has("python3").then(|| {
            Self::start("python", |port, _| {
                let mut command = Command::new("python3");
                command.args(["-u", "-m", "http.server", "-b", "127.0.0.1", "-d"]);
                command.arg(root).arg(port.to_string());
                command
            })
        })
    }

    /// `rclone serve webdav`.
    pub(crate) fn rclone(root: &Path) -> Option<Self> {
        has("rclone").then(|| {
            Self::start("rclone", |port, state| {
                let mut command = Command::new("rclone");
                command.args(["serve", "webdav", "-vv", "--config"]).arg(state.join("none"));
                command.args(["--addr", &format!("127.0.0.1:{port}"), "--dir-cache-time", "0"]);
                command.arg(root);
                command
            })
        })
    }

    /// Returns the requests that the server has logged: methods and paths, in order.
    ///
    /// Logs are written with a delay: a last request shows when everything before it is there.
    pub(crate) fn requests(&self) -> Vec<String> {
        let mark = format!("/mark-{}", MARKS.fetch_add(1, Ordering::Relaxed));
        let address = self.url.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!("HEAD {mark} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        let log = || fs::read_to_string(self.state.path().join("log")).unwrap();
        until("the log has the request", || log().contains(&mark));
        let text = log();
        let methods = ["GET", "HEAD", "PUT", "MKCOL", "PROPFIND", "OPTIONS", "DELETE"];
        let request = |line: &str| {
            let words: Vec<_> = line.split([' ', '"']).collect();
            let at = words.iter().position(|word| methods.contains(word))?;
            Some(format!("{} {}", words[at], words.get(at + 1)?))
        };
        text.lines().filter(|line| !line.contains("/mark-")).filter_map(request).collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SIGTERM also ends the processes that it has started.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-s", "TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

static MARKS: AtomicU32 = AtomicU32::new(0);
