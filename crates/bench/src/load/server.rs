//! The servers that are measured: `underpass serve` and others, each started on one core and a
//! free port of loopback, and ended with all of its processes.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use underpass_engine::wait::Limits;

use super::caches::SquidMemory;
use super::server_kind::{
    ACCESS_LOG, BARE_LOOP, Configuration, FILES, OURS, ServerKind, ServerProgram,
};
use super::usage::{ServerUsage, family};
use crate::error::{BenchError, Result, WithPath, plain};
use crate::record::{NamedCall, ServerMemory};
use crate::run::{
    CallTracer, Context, RunFolder, Running, build, find, is_root, poll_until, retry,
};

/// A running server that has responded. Ended when dropped.
#[derive(Debug)]
pub(crate) struct RunningServer {
    running: Running,
    pub(crate) address: SocketAddrV4,
    kind: ServerKind,
}

/// The parts that the servers of a run have in common.
#[derive(Debug)]
pub(crate) struct ServedSite<'a> {
    context: &'a Context<'a>,
    /// The folder of the run; its subfolder [`FILES`] is what is served.
    pub(crate) folder: RunFolder,
    pub(crate) log: bool,
    /// The maximum number of simultaneous connections, if it is large.
    pub(crate) connections: Option<u32>,
    /// Whether connections are encrypted, by the certificate and key of the run.
    pub(crate) is_encrypted: bool,
    /// The core that the server runs on; `None` leaves that to the kernel.
    pub(crate) core: Option<usize>,
    _squid: SquidMemory,
}

impl<'a> ServedSite<'a> {
    /// Creates a folder in `dir`, without files to serve yet.
    pub(crate) fn create(
        context: &'a Context<'a>,
        dir: &Path,
        log: bool,
        core: Option<usize>,
    ) -> Result<Self> {
        let folder = RunFolder::create(dir)?;
        let files = folder.file(FILES);
        fs::create_dir(&files).with_path("creating", files)?;
        let (connections, is_encrypted, _squid) = (None, false, SquidMemory);
        Ok(Self { context, folder, log, connections, is_encrypted, core, _squid })
    }

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

    /// Starts a server and waits until it responds.
    pub(crate) fn start(&self, kind: &ServerKind) -> Result<RunningServer> {
        if self.log {
            // The log of the previous server must not be written to the disk now.
            for log in [ACCESS_LOG, LOG] {
                self.folder.clear(&self.folder.file(log))?;
            }
        }
        match kind {
            ServerKind::Underpass(options) => self.start_underpass(kind, options),
            ServerKind::Cache(setup) => self.start_at_port(kind, |folder, port| {
                setup.command(self.context.program(), folder, port)
            }),
            ServerKind::Other(other, program) => self.start_at_port(kind, |folder, port| {
                self.other(other, program.as_deref(), folder, port)
            }),
        }
    }

    fn start_underpass(&self, kind: &ServerKind, options: &[&str]) -> Result<RunningServer> {
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
        if self.log {
            command.arg("--log-file").arg(self.folder.file(LOG))
        } else {
            command.arg("-q")
        };
        let mut running = Running::start(command, self.core)?;
        loop {
            let line = running.next_error_line();
            if let Some(address) = address(&line) {
                return Ok(RunningServer { running, address, kind: kind.clone() });
            }
            if line.is_empty() && running.has_ended() {
                return Err(ended(running, kind));
            }
        }
    }

    /// Starts a server that needs a port in advance, which another program may take first.
    fn start_at_port(
        &self,
        kind: &ServerKind,
        command: impl Fn(&Path, u16) -> Result<Command>,
    ) -> Result<RunningServer> {
        let folder = self.folder.absolute()?;
        retry(self.context.cancel, || {
            let address = free_address()?;
            let mut running = Running::start(command(&folder, address.port())?, self.core)?;
            let answers = poll_until(MAX_WAIT, || match TcpStream::connect(address) {
                Err(_) if !running.has_ended() => None,
                outcome => Some(outcome.is_ok()),
            });
            match answers {
                Some(true) => Ok(RunningServer { running, address, kind: kind.clone() }),
                _ => Err(ended(running, kind)),
            }
        })
    }

    /// Returns the command of another project's server.
    fn other(
        &self,
        other: &ServerProgram,
        program: Option<&Path>,
        folder: &Path,
        port: u16,
    ) -> Result<Command> {
        let mut command = if other == &BARE_LOOP {
            let mut command = Command::new(self.built("bare_loop", "serve.c")?);
            command.current_dir(folder.join(FILES));
            command
        } else {
            self.configured(other, program, port)?
        };
        for word in other.words.split(' ') {
            match word {
                "PORT" => command.arg(port.to_string()),
                "FOLDER" => command.arg(folder),
                FILES => command.arg(folder.join(FILES)),
                word => command.arg(word),
            };
        }
        Ok(command)
    }

    /// Returns the program of a server, whose configuration is written if it takes one.
    fn configured(
        &self,
        other: &ServerProgram,
        program: Option<&Path>,
        port: u16,
    ) -> Result<Command> {
        let name = other.name;
        let found = program.map(Path::to_owned).or_else(|| find(name));
        let mut command = Command::new(found.unwrap_or_else(|| name.into()));
        let Some(template) = other.template else { return Ok(command) };
        if (self.log || self.is_encrypted) && !other.has_tls_and_log {
            return Err(BenchError::other(name, "it is measured without TLS and without a log"));
        }
        let configuration = Configuration {
            port,
            connections: self.connections.unwrap_or(CONNECTIONS),
            log: self.log,
            tls: self.is_encrypted,
            is_root: is_root(),
            cold: other.cold,
        };
        let path = self.folder.file(CONFIGURATION);
        fs::write(&path, configuration.render(template)).with_path("writing", path)?;
        command.current_dir(self.folder.path());
        Ok(command)
    }

    pub(crate) fn bare_client(&self) -> Result<PathBuf> {
        self.built("bare_client", "client.c")
    }

    /// Returns a program in C, which is built if that has not been done.
    fn built(&self, name: &str, source: &str) -> Result<PathBuf> {
        let folder = self.folder.absolute()?;
        let program = folder.join(name);
        if !program.exists()
            && let Some(why) =
                build(&folder, BARE_SOURCES, &[&format!("cc -std=c11 -O2 -o {name} {source}")])?
        {
            return Err(BenchError::measuring(name, why));
        }
        Ok(program)
    }
}

impl RunningServer {
    pub(crate) fn usage(&self) -> ServerUsage {
        ServerUsage::read(&self.processes())
    }

    pub(crate) fn memory(&self) -> ServerMemory {
        ServerMemory::of(&self.processes())
    }

    pub(crate) fn processes(&self) -> Vec<Pid> {
        family(self.running.pid())
    }

    /// Counts the system calls of all of its processes during `work`.
    pub(crate) fn calls(
        &self,
        tracer: &CallTracer,
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Vec<NamedCall>> {
        let other = |failure: BenchError| io::Error::other(failure.to_string());
        let watch = tracer.attach(|| self.processes()).map_err(other)?;
        work()?;
        watch.end().map_err(other)
    }

    pub(crate) fn failure(mut self, error: &io::Error) -> BenchError {
        if error.kind() == ErrorKind::Interrupted {
            return BenchError::Interrupted;
        }
        let why = if self.running.has_ended() {
            format!("the server has ended: {}", plain(error))
        } else {
            plain(error)
        };
        BenchError::measuring(&self.kind, why)
    }
}

impl Drop for RunningServer {
    /// A killed nginx leaves its worker running forever, so it gets a signal to quit first.
    fn drop(&mut self) {
        // The process id of a server that has ended may have been reused.
        if !self.kind.leaves_workers() || self.running.has_ended() {
            return;
        }
        let open = |pid| pidfd_open(pid, PidfdFlags::empty()).ok();
        let processes: Vec<_> = self.processes().into_iter().filter_map(open).collect();
        if let Some(master) = processes.first() {
            // This fails if the process has ended already.
            let _ = pidfd_send_signal(master, Signal::TERM);
        }
        let limits = Limits::since(Instant::now(), Some(MAX_WAIT), None);
        for process in &processes {
            // A process that has ended, but was not waited for yet, is ready, too.
            if limits.until_ready(process, PollFlags::IN).is_err() {
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
        }
    }
}

/// Returns why a server does not respond, by its last message.
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

pub(crate) fn free_port() -> Result<u16> {
    Ok(free_address()?.port())
}

fn free_address() -> Result<SocketAddrV4> {
    let local = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let found = TcpListener::bind(local).and_then(|listener| listener.local_addr());
    let found = found.with_path("finding a free port at", local.ip().to_string())?;
    Ok(SocketAddrV4::new(*local.ip(), found.port()))
}

const CONFIGURATION: &str = "server.conf";

const BARE_SOURCES: &[(&str, &str)] = &[
    ("client.c", include_str!("../../../../peers/c/client.c")),
    ("peer.h", include_str!("../../../../peers/c/peer.h")),
    ("serve.c", include_str!("../../../../peers/c/serve.c")),
];

/// The certificate of the run and its key, as in the configurations.
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

const LOG: &str = "underpass.log";

/// More connections than any load has.
const CONNECTIONS: u32 = 4096;

/// The time that a server may take to begin and to end.
const MAX_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

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
