//! A server that gets its certificates from a certificate authority.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use underpass_testkit::KilledOnDrop;

use crate::acme::authority::Authority;
use crate::rig::{Finished, Running, folder, underpass};

/// Folders for a server, which can be started again.
pub struct Site {
    pub folder: TempDir,
    pub tls: u16,
    options: Vec<String>,
}

/// A running server, whose messages go to a file.
pub struct Server {
    pub child: KilledOnDrop,
    log: PathBuf,
}

impl Site {
    /// A server at the port where the authority checks challenges over TLS.
    pub fn new(authority: &Authority) -> Self {
        let folder = folder();
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::write(folder.path().join("root/file"), "contents").unwrap();
        Self { folder, tls: authority.tls, options: authority.options() }
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn start(&self, options: &[&str]) -> Server {
        self.start_at(self.tls, options)
    }

    pub fn start_at(&self, tls: u16, options: &[&str]) -> Server {
        let log = self.folder.path().join(format!("log-{tls}"));
        let child = self
            .command(tls, options)
            .stdout(File::create(self.folder.path().join("access")).unwrap())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let server = Server { child: KilledOnDrop(child), log };
        server.says("serving ");
        server
    }

    pub fn command(&self, tls: u16, options: &[&str]) -> Command {
        let mut command = underpass();
        command.args(["serve", "--bind", &format!("127.0.0.1:{tls}"), "--acme-state"]);
        command.arg(self.state()).args(&self.options).args(options);
        command.arg(self.folder.path().join("root"));
        command
    }

    /// Asks for a path of a name, and trusts the authority alone.
    pub fn get(&self, authority: &Authority, name: &str, path: &str) -> Finished {
        let (url, map) = (format!("https://{name}:{}{path}", self.tls), self.map(name));
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--noproxy", "*", "--resolve", &map, "--cacert"]);
        curl.arg(authority.root()).arg(url);
        curl.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        Running::start(curl).finish()
    }

    pub fn map(&self, name: &str) -> String {
        format!("{name}:{}:127.0.0.1", self.tls)
    }
}

impl Server {
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it has printed this message.
    #[track_caller]
    pub fn says(&self, words: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.log().contains(words) {
            assert!(Instant::now() < deadline, "'{words}' is not in: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn end(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
    }
}
