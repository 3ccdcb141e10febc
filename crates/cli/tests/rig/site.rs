//! A folder that is served, and programs that fetch from it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::{Finished, Running, end, folder, has, piped, serve, until};

/// A served folder, and one for what is fetched.
pub struct Site {
    served: TempDir,
    fetched: TempDir,
    pub server: Running,
}

impl Site {
    /// `None`, with a message, if a program that has to fetch is missing.
    pub fn new(programs: &[&str], args: &[&str]) -> Option<Self> {
        if !programs.iter().all(|program| has(program)) {
            return None;
        }
        let (served, fetched) = (folder(), folder());
        let server = serve(&served, &[&["--log-format", "json"], args].concat());
        Some(Self { served, fetched, server })
    }

    /// The address of a path, which has to be encoded.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server.address)
    }

    /// Where a file is that is served.
    pub fn source(&self, name: impl AsRef<Path>) -> PathBuf {
        self.served.path().join(name)
    }

    /// Where a file is that was fetched.
    pub fn target(&self, name: impl AsRef<Path>) -> PathBuf {
        self.fetched.path().join(name)
    }

    /// Replaces a file atomically.
    pub fn replace(&self, name: &str, contents: &[u8]) {
        fs::write(self.source(".new"), contents).unwrap();
        fs::rename(self.source(".new"), self.source(name)).unwrap();
    }

    /// A program that starts in the folder for fetched files, without the user's configuration.
    pub fn peer(&self, program: &str, args: &[&str]) -> Command {
        let mut command = piped(program);
        command.args(args).current_dir(&self.fetched).env("HOME", self.fetched.path());
        // Browsers leave folders there.
        command.env("TMPDIR", self.fetched.path());
        command
    }

    /// Runs such a program to its end.
    pub fn fetch(&self, program: &str, args: &[&str]) -> Finished {
        Running::start(self.peer(program, args)).finish()
    }

    /// The response body for a path.
    pub fn get(&self, path: &str) -> Vec<u8> {
        self.fetch("curl", &["-sS", "--fail", &self.url(path)]).succeeded().stdout
    }

    /// A field of the answer to HEAD.
    pub fn get_head(&self, path: &str, field: &str) -> String {
        let head = self.fetch("curl", &["-sS", "-I", &self.url(path)]).succeeded().text();
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(field)).unwrap().1.to_owned()
    }

    /// Waits until no response is in progress.
    pub fn rest(&self) {
        until("no transfer is under way", || {
            let transfers: Value =
                serde_json::from_slice(&self.get(".underpass/transfers?json")).unwrap();
            transfers.as_array().unwrap().is_empty()
        });
    }

    /// Ends the server and returns the lines of its log.
    pub fn end(self) -> Vec<Value> {
        end(self.server).1
    }
}
