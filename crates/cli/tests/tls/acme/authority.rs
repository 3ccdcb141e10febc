//! A certificate authority for one test: pebble, with names that all resolve to this machine.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use tempfile::TempDir;
use underpass_testkit::free_port;
use underpass_testkit::tls::certificate;

use crate::rig::{folder, has, is_installed, skip, until};

/// A certificate authority that can be started and stopped.
pub struct Authority {
    folder: TempDir,
    program: PathBuf,
    child: Option<Child>,
    port: u16,
    management: u16,
    /// The ports at which it checks challenges.
    pub http: u16,
    pub tls: u16,
    dns: String,
}

impl Authority {
    /// Prepares an authority whose certificates are valid for this number of seconds; `None` if
    /// pebble is not installed, which is an error where it could be built.
    pub fn prepared(validity: u32) -> Option<Self> {
        // The test's own path is `target/PROFILE/deps/NAME`.
        let own = std::env::current_exe().unwrap();
        let program = own.ancestors().nth(3).unwrap().join("peers/pebble");
        if !program.is_file() {
            if is_installed("go") {
                skip("pebble is not installed: run scripts/test-peers");
            } else {
                eprintln!("skipped: pebble is not installed, and there is no Go to build it");
            }
            return None;
        }
        if !has("curl") {
            return None;
        }
        let authority = Self {
            folder: folder(),
            program,
            child: None,
            port: free_port(),
            management: free_port(),
            http: free_port(),
            tls: free_port(),
            dns: names(),
        };
        authority.configure(validity);
        Some(authority)
    }

    /// Starts such an authority.
    pub fn new(validity: u32) -> Option<Self> {
        let mut authority = Self::prepared(validity)?;
        authority.start();
        Some(authority)
    }

    fn configure(&self, validity: u32) {
        let (certificate, key) =
            certificate(self.folder.path(), "cert", &["localhost", "127.0.0.1"]);
        let config = serde_json::json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{}", self.port),
            "managementListenAddress": format!("127.0.0.1:{}", self.management),
            "certificate": certificate,
            "privateKey": key,
            "httpPort": self.http,
            "tlsPort": self.tls,
            "domainBlocklist": ["blocked.example"],
            "retryAfter": {"authz": 1, "order": 1},
            "keyAlgorithm": "ecdsa",
            "profiles": {"default": {"description": "", "validityPeriod": validity}},
        }});
        fs::write(self.at("config.json"), config.to_string()).unwrap();
    }

    /// Starts it without earlier state.
    pub fn start(&mut self) {
        let mut child = Command::new(&self.program)
            .args(["-dnsserver", &self.dns, "-config"])
            .arg(self.at("config.json"))
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", "5")
            // An authorization is not used again: each renewal answers a challenge.
            .env("PEBBLE_AUTHZREUSE", "0")
            .stdout(File::options().create(true).append(true).open(self.log()).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("an authority that listens", || {
            assert!(child.try_wait().unwrap().is_none(), "the authority has ended");
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
                && TcpStream::connect(("127.0.0.1", self.management)).is_ok()
        });
        self.child = Some(child);
        let roots = format!("https://127.0.0.1:{}/roots/0", self.management);
        let fetched = Command::new("curl")
            .args(["-sSf", "--noproxy", "*", "--cacert"])
            .arg(self.at("cert.pem"))
            .arg("-o")
            .arg(self.root())
            .arg(roots)
            .status();
        assert!(fetched.unwrap().success());
    }

    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Killing it loses nothing.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The number of certificates that it has issued.
    pub fn issued(&self) -> usize {
        let log = fs::read_to_string(self.log()).unwrap();
        log.lines().filter(|line| line.contains("Issued certificate")).count()
    }

    /// The certificate of the root of those that it issues.
    pub fn root(&self) -> PathBuf {
        self.at("root.pem")
    }

    /// The options by which a server uses it.
    pub fn options(&self) -> Vec<String> {
        let ca = self.at("cert.pem");
        [
            "--acme-directory",
            &format!("https://127.0.0.1:{}/dir", self.port),
            "--acme-ca",
            ca.to_str().unwrap(),
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn log(&self) -> PathBuf {
        self.at("log")
    }

    fn at(&self, name: &str) -> PathBuf {
        Path::join(self.folder.path(), name)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Answers questions for addresses with 127.0.0.1, on a thread that lasts as long as the process;
/// returns where. Pebble asks over TCP.
fn names() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A client that closes in the middle of a query gets no answer.
            let mut len = [0; 2];
            while stream.read_exact(&mut len).is_ok() {
                let mut question = vec![0; usize::from(u16::from_be_bytes(len))];
                stream.read_exact(&mut question).unwrap();
                let answer = answer(&question);
                let len = u16::try_from(answer.len()).unwrap().to_be_bytes();
                let _ = stream.write_all(&[&len[..], &answer].concat());
            }
        }
    });
    address
}

/// The response to a question, without an error: one answer for an address of IPv4, otherwise none.
fn answer(question: &[u8]) -> Vec<u8> {
    const A: u8 = 1;
    let name_len = question[12..].iter().position(|byte| *byte == 0).unwrap();
    let end = 12 + name_len + 1 + 4;
    let is_a = question[end - 3] == A;
    let mut answer = question[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    answer.extend(&question[12..end]);
    if is_a {
        answer.extend([0xc0, 12, 0, A, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1]);
    }
    answer
}
