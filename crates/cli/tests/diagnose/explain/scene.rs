//! Programs that are explained, and what is read from their receipts.

use std::ffi::OsStr;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::rig::{Finished, Running, folder, has, noise_file, underpass, until};

/// A folder with a file `source` of noise in it.
pub struct Scene {
    pub folder: TempDir,
}

impl Scene {
    pub fn new(len: usize) -> Self {
        let folder = folder();
        noise_file(folder.path(), "source", len);
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `underpass explain --json -o receipt` with more options, and a program in the folder.
    pub fn command<S: AsRef<OsStr>>(&self, options: &[&str], words: &[S]) -> Command {
        let mut command = underpass();
        command.args(["explain", "--json", "-o"]).arg(self.path("receipt"));
        command.args(options).arg("--").args(words).current_dir(self.folder.path());
        command
    }

    /// Runs a program to its end.
    pub fn explain<S: AsRef<OsStr>>(&self, words: &[S]) -> (Finished, Value) {
        let finished = Running::start(self.command(&[], words)).finish();
        (finished, self.receipt())
    }

    /// What `-o` has written.
    pub fn receipt(&self) -> Value {
        let text = fs::read_to_string(self.path("receipt")).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Starts a server that is explained, and waits until it can be connected to.
    pub fn serve<S: AsRef<OsStr>>(&self, words: &[S], port: u16) -> Running {
        let server = Running::start(self.command(&[], words));
        until("a server that listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        server
    }
}

pub use underpass_testkit::free_port;

/// Fetches a URL by curl into a file.
pub fn fetch(port: u16, name: &str, to: &Path) {
    let url = format!("http://127.0.0.1:{port}/{name}");
    let status = Command::new("curl").args(["-sf", "-o"]).arg(to).arg(url).status().unwrap();
    assert!(status.success());
}

/// Bytes and calls of an entry.
pub fn count(entry: &Value) -> (u64, u64) {
    (entry["bytes"].as_u64().unwrap(), entry["calls"].as_u64().unwrap())
}

/// What was moved in the kernel, summed over the entries that match.
pub fn moved(receipt: &Value, mechanism: &str, from: &str, to: &str) -> (u64, u64) {
    sum(receipt["moves"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|each| each["mechanism"] == mechanism && each["from"] == from && each["to"] == to))
}

/// What has crossed between the kernel and memory.
pub fn crossed(receipt: &Value, direction: &str, kind: &str, mechanism: &str) -> (u64, u64) {
    sum(receipt["crossings"].as_array().unwrap().iter().filter(|each| {
        each["direction"] == direction && each["kind"] == kind && each["mechanism"] == mechanism
    }))
}

/// What one system call did.
pub fn by_call(receipt: &Value, name: &str) -> (u64, u64) {
    sum(receipt["system_calls"].as_array().unwrap().iter().filter(|each| each["name"] == name))
}

fn sum<'v>(entries: impl Iterator<Item = &'v Value>) -> (u64, u64) {
    entries.map(count).fold((0, 0), |(bytes, calls), (more, again)| (bytes + more, calls + again))
}

/// The entry of an end whose name ends so.
#[track_caller]
pub fn end<'v>(receipt: &'v Value, name: &str) -> &'v Value {
    let ends = receipt["ends"].as_array().unwrap();
    let found = ends.iter().find(|end| end["name"].as_str().unwrap().ends_with(name));
    found.unwrap_or_else(|| panic!("no {name} in {receipt}"))
}

/// Python, if it is there: the system's own, for what else is called so may be a script that starts
/// a dozen programs first.
pub fn python() -> Option<&'static str> {
    let own = "/usr/bin/python3";
    if Path::new(own).exists() {
        return Some(own);
    }
    has("python3").then_some("python3")
}
