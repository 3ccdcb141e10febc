//! The servers that are measured: `underpass serve` and its peers, each started on one core and a
//! free port of loopback, and ended with all of its processes.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::configuration::{self, Configuration};
use super::usage::{ServerUsage, family};
use crate::error::{BenchError, Result, WithPath, plain};
use crate::record::{Contender, Memory};
use crate::run::{Context, Folder, Running, find};

/// Which server, and what it is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// The loop of system calls in `peers/c/serve.c`.
    BareLoop,
    /// dufs, this program, with all rights.
    Dufs(PathBuf),
    /// h2o.
    H2o,
    /// lighttpd.
    Lighttpd,
    /// miniserve, this program.
    Miniserve(PathBuf),
    /// nginx as it serves files.
    Nginx,
    /// nginx as it serves files, whose threads read what is not in the page cache.
    NginxAio,
    /// nginx as it serves files past the page cache.
    NginxDirect,
    /// nginx as it takes them.
    NginxDav,
    /// `underpass serve` with these options besides.
    Underpass(&'static [&'static str]),
}

/// A server that answers. Ended when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    running: Running,
    /// Where it listens.
    pub(crate) address: SocketAddrV4,
    kind: ServerKind,
}

/// What the servers of a run have in common.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    context: &'a Context<'a>,
    /// The folder of the run; its subfolder [`FILES`] is what is served.
    pub(crate) folder: Folder,
    /// Whether an access log is written.
    pub(crate) log: bool,
    /// Connections that there may be at once, if there are many.
    pub(crate) connections: Option<u32>,
    /// Whether connections are encrypted, by the certificate and key of the run.
    pub(crate) is_encrypted: bool,
    /// Where the server runs; wherever the kernel puts it if it is not kept anywhere.
    pub(crate) core: Option<usize>,
}

impl<'a> Site<'a> {
    /// Returns a new folder in `dir` with nothing to serve yet.
    pub(crate) fn create(
        context: &'a Context<'a>,
        dir: &std::path::Path,
        log: bool,
        core: Option<usize>,
    ) -> Result<Self> {
        let folder = Folder::create(dir)?;
        let files = folder.file(FILES);
        fs::create_dir(&files).with_path("creating", files)?;
        Ok(Self { context, folder, log, connections: None, is_encrypted: false, core })
    }

    /// Returns the path of a file that is served.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.file(FILES).join(name)
    }

    /// Makes a certificate, and has every server use it.
    pub(crate) fn encrypt(&mut self) -> Result<()> {
        let failed =
            |error: rcgen::Error| BenchError::measuring("a certificate", error.to_string());
        let names = vec!["localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()];
        let made = rcgen::generate_simple_self_signed(names).map_err(failed)?;
        for (name, text) in
            [(CERTIFICATE, made.cert.pem()), (KEY, made.signing_key.serialize_pem())]
        {
            let path = self.folder.file(name);
            fs::write(&path, text).with_path("writing", path)?;
        }
        self.is_encrypted = true;
        Ok(())
    }

    /// Starts a server and waits until it answers.
    pub(crate) fn start(&self, kind: &ServerKind) -> Result<Server> {
        // What the server before has logged is not to be written to the disk now.
        for log in [configuration::ACCESS_LOG, LOG] {
            if self.log {
                self.folder.clear(&self.folder.file(log))?;
            }
        }
        match kind {
            ServerKind::Underpass(options) => self.start_underpass(options),
            _ => self.start_peer(kind),
        }
    }

    fn start_underpass(&self, options: &'static [&'static str]) -> Result<Server> {
        let kind = ServerKind::Underpass(options);
        let mut command = self.context.program();
        command.arg("serve").arg(self.folder.file(FILES)).args(OURS).args(options);
        if let Some(connections) = self.connections {
            command.args(["--max-connections", &connections.to_string()]);
            // The load may come from one address.
            command.args(["--max-per-address", "0"]);
        }
        if self.is_encrypted {
            command.arg("--tls-cert").arg(self.folder.file(CERTIFICATE));
            command.arg("--tls-key").arg(self.folder.file(KEY));
        }
        match self.log {
            true => command.arg("--log-file").arg(self.folder.file(LOG)),
            false => command.arg("-q"),
        };
        let mut running = Running::start(command, self.core)?;
        loop {
            let line = running.next_error_line();
            if let Some(address) = address(&line) {
                return Ok(Server { running, address, kind });
            }
            if line.is_empty() && running.has_ended() {
                return Err(ended(running, &kind));
            }
        }
    }

    /// Starts a peer, which needs a port in advance; if another program takes the port first,
    /// tries another one.
    fn start_peer(&self, kind: &ServerKind) -> Result<Server> {
        let mut outcome = self.try_peer(kind);
        for _ in 0..2 {
            if outcome.is_err() {
                outcome = self.try_peer(kind);
            }
        }
        outcome
    }

    fn try_peer(&self, kind: &ServerKind) -> Result<Server> {
        let address = free_address()?;
        let command = match kind {
            ServerKind::Dufs(program) => {
                let mut command = Command::new(program);
                command.args(DUFS).arg(address.port().to_string()).arg(self.folder.file(FILES));
                command
            }
            ServerKind::Miniserve(program) => {
                let mut command = Command::new(program);
                command
                    .args(MINISERVE)
                    .arg(address.port().to_string())
                    .arg(self.folder.file(FILES));
                command
            }
            ServerKind::BareLoop => self.bare_loop(address.port())?,
            _ => self.configured(kind, address.port())?,
        };
        let mut running = Running::start(command, self.core)?;
        let deadline = Instant::now() + MAX_WAIT;
        while TcpStream::connect(address).is_err() {
            if running.has_ended() || Instant::now() >= deadline {
                return Err(ended(running, kind));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Server { running, address, kind: kind.clone() })
    }

    /// Returns the command that starts a server by its configuration, which it writes.
    fn configured(&self, kind: &ServerKind, port: u16) -> Result<Command> {
        let configuration = Configuration {
            port,
            connections: self.connections.unwrap_or(CONNECTIONS),
            log: self.log,
            tls: self.is_encrypted,
            is_root: rustix::process::geteuid().is_root(),
            cold: match kind {
                ServerKind::NginxAio => "aio threads;",
                ServerKind::NginxDirect => "aio threads; directio 512; output_buffers 2 1m;",
                _ => "",
            },
        };
        let (name, template) = match kind {
            ServerKind::H2o => ("h2o", configuration::H2O),
            ServerKind::Lighttpd => ("lighttpd", configuration::LIGHTTPD),
            ServerKind::NginxDav => ("nginx", configuration::NGINX_DAV),
            _ => ("nginx", configuration::NGINX),
        };
        let has_tls_and_log = name == "nginx";
        if (self.log || self.is_encrypted) && !has_tls_and_log {
            return Err(BenchError::other(name, "it is measured without TLS and without a log"));
        }
        let path = self.folder.file(CONFIGURATION);
        fs::write(&path, configuration.render(template)).with_path("writing", path)?;
        let mut command = Command::new(find(name).unwrap_or_else(|| name.into()));
        match kind {
            ServerKind::H2o => command.args(["-m", "worker", "-c", CONFIGURATION]),
            ServerKind::Lighttpd => command.args(["-D", "-f", CONFIGURATION]),
            _ => command.arg("-p").arg(absolute(&self.folder)?).args(["-c", CONFIGURATION]),
        };
        command.current_dir(self.folder.path());
        Ok(command)
    }

    /// Returns the command that starts the bare loop, which is built if that has not been done.
    fn bare_loop(&self, port: u16) -> Result<Command> {
        let program = absolute(&self.folder)?.join("bare_loop");
        if !program.exists() {
            for (name, text) in BARE_LOOP {
                let path = self.folder.file(name);
                fs::write(&path, text).with_path("writing", path)?;
            }
            let mut compiler = Command::new("cc");
            compiler.args(["-std=c11", "-O2", "-o"]).arg(&program).arg("serve.c");
            let built = compiler.current_dir(self.folder.path()).output();
            let built = built.with_path("starting", "cc")?;
            if !built.status.success() {
                let said = String::from_utf8_lossy(&built.stderr).into_owned();
                return Err(BenchError::other("cc", said.trim()));
            }
        }
        let mut command = Command::new(program);
        command.arg(port.to_string()).arg(BARE_SMALL).current_dir(self.folder.file(FILES));
        Ok(command)
    }
}

impl ServerKind {
    /// Returns what it was started with, without what differs from one start to the next.
    pub(crate) fn command_line(&self) -> String {
        match self {
            Self::Dufs(_) => format!("dufs {} PORT {FILES}", DUFS.join(" ")),
            Self::BareLoop => format!("peers/c/serve.c PORT {BARE_SMALL}"),
            Self::H2o => "h2o with peers/h2o.conf".to_owned(),
            Self::Lighttpd => "lighttpd with peers/lighttpd.conf".to_owned(),
            Self::Miniserve(_) => format!("miniserve {} PORT {FILES}", MINISERVE.join(" ")),
            Self::Nginx => "nginx with peers/nginx.conf".to_owned(),
            Self::NginxAio => "nginx with peers/nginx.conf, aio threads".to_owned(),
            Self::NginxDirect => "nginx with peers/nginx.conf, aio threads and directio".to_owned(),
            Self::NginxDav => "nginx with peers/nginx-dav.conf".to_owned(),
            Self::Underpass(options) => {
                let words = [&["underpass", "serve", FILES][..], OURS, options, &["-q"]];
                words.concat().join(" ")
            }
        }
    }
}

impl From<Contender> for ServerKind {
    fn from(contender: Contender) -> Self {
        let program = |name: &str| find(name).unwrap_or_else(|| name.into());
        match contender {
            Contender::Dufs => Self::Dufs(program("dufs")),
            Contender::Miniserve => Self::Miniserve(program("miniserve")),
            Contender::BareLoop => Self::BareLoop,
            Contender::H2o => Self::H2o,
            Contender::Lighttpd => Self::Lighttpd,
            Contender::Nginx => Self::Nginx,
            Contender::NginxAio => Self::NginxAio,
            Contender::NginxDirect => Self::NginxDirect,
            _ => Self::Underpass(&[]),
        }
    }
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BareLoop => "the bare loop",
            Self::Dufs(_) => "dufs",
            Self::H2o => "h2o",
            Self::Lighttpd => "lighttpd",
            Self::Miniserve(_) => "miniserve",
            Self::Nginx | Self::NginxAio | Self::NginxDav | Self::NginxDirect => "nginx",
            Self::Underpass(_) => "underpass",
        })
    }
}

impl Server {
    /// Returns what all of its processes have cost so far.
    pub(crate) fn usage(&self) -> ServerUsage {
        ServerUsage::read(&self.processes())
    }

    /// Returns the memory of all of its processes.
    pub(crate) fn memory(&self) -> Memory {
        Memory::of(&self.processes())
    }

    /// Returns all of its processes.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        family(self.running.pid())
    }

    /// Returns the failure of one of its clients.
    pub(crate) fn failure(mut self, error: &std::io::Error) -> BenchError {
        if error.kind() == ErrorKind::Interrupted {
            return BenchError::Interrupted;
        }
        let said = match self.running.has_ended() {
            true => format!("the server has ended: {}", plain(error)),
            false => plain(error),
        };
        BenchError::measuring(&self.kind, said)
    }
}

impl Drop for Server {
    /// A killed nginx leaves its worker running forever, so it gets a signal to quit first.
    fn drop(&mut self) {
        // The id of one that has ended may be another process's.
        if self.kind.to_string() != "nginx" || self.running.has_ended() {
            return;
        }
        let open = |pid| pidfd_open(pid, PidfdFlags::empty()).ok();
        let processes: Vec<_> = self.processes().into_iter().filter_map(open).collect();
        if let Some(master) = processes.first() {
            // Fails if it has ended, which is as good.
            let _ = pidfd_send_signal(master, Signal::TERM);
        }
        let deadline = Instant::now() + MAX_WAIT;
        for process in &processes {
            if !ends_before(process, deadline) {
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
        }
    }
}

/// Returns whether a process ends in time. One that has, but has not been waited for yet, counts.
fn ends_before(process: &OwnedFd, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    let left =
        Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left)).is_ok_and(|count| count > 0)
}

/// Returns why a server does not answer, in its own words.
fn ended(running: Running, kind: &ServerKind) -> BenchError {
    match running.finish(Some(Duration::ZERO), &AtomicBool::new(false)) {
        Ok(finished) => finished.failure(kind.to_string()),
        Err(failure) => failure,
    }
}

/// Returns the address in `serving DIR at http://127.0.0.1:PORT/`, or with https.
fn address(line: &str) -> Option<SocketAddrV4> {
    let (_, rest) = line.rsplit_once(" at http")?;
    let rest = rest.strip_prefix('s').unwrap_or(rest).strip_prefix("://")?;
    rest.split('/').next()?.trim().parse().ok()
}

/// Returns a free port of loopback.
pub(crate) fn free_port() -> Result<u16> {
    Ok(free_address()?.port())
}

/// Returns a free address of loopback.
fn free_address() -> Result<SocketAddrV4> {
    let local = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let found = TcpListener::bind(local).and_then(|listener| listener.local_addr());
    let failed = |source| BenchError::Network {
        action: "finding a free port at",
        address: Ipv4Addr::LOCALHOST.to_string(),
        source,
    };
    Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, found.map_err(failed)?.port()))
}

/// nginx takes a relative prefix for one of its own.
fn absolute(folder: &Folder) -> Result<PathBuf> {
    fs::canonicalize(folder.path()).with_path("looking at", folder.path())
}

/// The name of the folder that is served, as in `peers/nginx.conf`.
const FILES: &str = "www";

/// How ours listens.
const OURS: &[&str] = &["--bind", "127.0.0.1", "--port", "0", "--workers", "1"];

/// The arguments by which dufs listens, without an access log; its port follows.
const DUFS: &[&str] = &["--allow-all", "--log-format=", "--bind", "127.0.0.1", "--port"];

/// How miniserve listens, without an access log, which it does not write by default.
const MINISERVE: &[&str] = &["--interfaces", "127.0.0.1", "--port"];

const CONFIGURATION: &str = "server.conf";

/// The sources of the bare loop.
const BARE_LOOP: [(&str, &str); 2] = [
    ("peer.h", include_str!("../../../../peers/c/peer.h")),
    ("serve.c", include_str!("../../../../peers/c/serve.c")),
];

/// The largest file that the bare loop copies, in bytes.
const BARE_SMALL: &str = "16384";

/// The certificate of the run, as in [`configuration::TLS`].
const CERTIFICATE: &str = "certificate.pem";

/// Its key.
const KEY: &str = "key.pem";

/// The access log of ours.
const LOG: &str = "underpass.log";

/// More than any load has.
const CONNECTIONS: u32 = 4096;

/// How long a server may take to begin and to end.
const MAX_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_names_no_place() {
        let lines = [
            ServerKind::Dufs("/opt/dufs".into()),
            ServerKind::NginxDav,
            ServerKind::Underpass(&["-A"]),
        ]
        .map(|kind| kind.command_line());
        let expected = [
            "dufs --allow-all --log-format= --bind 127.0.0.1 --port PORT www",
            "nginx with peers/nginx-dav.conf",
            "underpass serve www --bind 127.0.0.1 --port 0 --workers 1 -A -q",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_address_is_found_in_the_line_that_tells_it() {
        for scheme in ["http", "https"] {
            let line = format!("serving /tmp/at http://x at {scheme}://127.0.0.1:4711/");
            assert_eq!(address(&line), Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 4711)));
        }
        for line in ["", "confined to /srv", "serving /srv at http://unix:/run/x"] {
            assert_eq!(address(line), None, "{line}");
        }
    }
}
