//! A store for one test: versitygw on a folder.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use underpass_testkit::{KilledOnDrop, free_port};

use crate::rig::{Finished, Running, folder, has_rare, underpass, until};

/// A running store with one bucket, `bucket`.
pub struct Store {
    _program: KilledOnDrop,
    folder: TempDir,
    pub url: String,
}

/// The program, which `scripts/test-peers` installs.
fn versitygw() -> Option<PathBuf> {
    // The test's own path is `target/PROFILE/deps/NAME`.
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(3).unwrap().join("peers/versitygw");
    // Building it takes a minute, and a compiler that Debian does not have.
    has_rare(path.to_str().unwrap()).then_some(path)
}

impl Store {
    /// Starts a store; `None` if none is installed.
    pub fn new() -> Option<Self> {
        let program = versitygw()?;
        let folder = folder();
        fs::create_dir(folder.path().join("bucket")).unwrap();
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let child = Command::new(program)
            .args(["--port", &address, "--quiet", "posix"])
            .arg(folder.path())
            .env("ROOT_ACCESS_KEY", ID)
            .env("ROOT_SECRET_KEY", SECRET)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut program = KilledOnDrop(child.unwrap());
        until("a store that listens", || {
            assert!(program.try_wait().unwrap().is_none(), "the store has ended");
            TcpStream::connect(&address).is_ok()
        });
        Some(Self { _program: program, folder, url: format!("http://{address}") })
    }

    /// The path of an object in the folder of the store.
    pub fn path(&self, key: &str) -> PathBuf {
        self.folder.path().join("bucket").join(key)
    }

    pub fn run(&self, at: &Path, args: &[&str]) -> Finished {
        Running::start(self.command(at, args)).finish()
    }

    pub fn command(&self, at: &Path, args: &[&str]) -> Command {
        command(&self.url, at, args)
    }
}

/// A command with the keys and the URL of a store, and nothing else in its environment.
pub fn command(url: &str, at: &Path, args: &[&str]) -> Command {
    let mut command = bare(at, args);
    command.env("AWS_ACCESS_KEY_ID", ID).env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("AWS_ENDPOINT_URL_S3", url);
    command
}

/// A command that finds no keys.
pub fn bare(at: &Path, args: &[&str]) -> Command {
    let mut command = underpass();
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command.env("HOME", at).env("AWS_EC2_METADATA_DISABLED", "true").env("NO_PROXY", "*");
    command.env("XDG_STATE_HOME", at.join("state"));
    command.args(args).current_dir(at).stdin(Stdio::null());
    command
}

pub const ID: &str = "an-id";
pub const SECRET: &str = "a/secret+of=some-length";
