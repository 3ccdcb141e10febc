//! The common parts of all samples with servers.

use std::fs::File;
use std::io;
use std::time::Duration;

use underpass_engine::{Report, Usage};

use super::client::Host;
use super::connection::Tls;
use super::drop_behind::{DropBehind, PIECE};
use super::generator::{Class, LoadGenerator, RequestSpec};
use super::server::{RunningServer, ServedSite};
use super::server_kind::ServerKind;
use super::usage::ServerUsage;
use crate::error::Result;
use crate::record::{
    Cell, Contender, Counted, Load, ProcessCost, Role, Served, Setting, Side, ThreadCost,
};
use crate::run::{
    CallTracer, Context, Cores, Measured, Noise, SystemCongestion, Verification, allow_open_files,
    drop_cached, machine_seconds, on_core,
};

#[derive(Debug)]
pub(crate) struct ServerFixture<'a> {
    pub(crate) site: ServedSite<'a>,
    pub(crate) noise: Noise,
    pub(crate) setting: Setting,
    /// The congestion control of both ends.
    pub(crate) congestion: SystemCongestion,
    pub(crate) tls: Option<Tls>,
    /// The first for the server, the second for the load.
    pub(crate) cores: Cores,
    pub(crate) context: &'a Context<'a>,
    pub(crate) sha256: String,
}

/// The resources that a server and its load have used in a window of time.
#[derive(Debug)]
pub(crate) struct ResourceUse {
    server: ProcessCost,
    load: Usage,
}

/// Watches a server and the calling thread, which is its load.
#[derive(Debug)]
pub(crate) struct LoadWindow {
    server: ServerUsage,
    load: Usage,
}

impl ServerFixture<'_> {
    pub(crate) fn host(&self, server: &RunningServer) -> Host {
        let congestion = self.congestion.name.clone();
        Host { address: server.address, congestion, tls: self.tls.clone() }
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.setting.seconds)
    }

    /// Returns the time in which a server and its connections warm up before each sample.
    pub(crate) fn warm_up(&self) -> Duration {
        WARM_UP.min(self.time())
    }

    /// Lets the server keep this many connections, and a few more that measure the latency, and
    /// lets server and load have these and `files` open.
    pub(crate) fn allow(&mut self, connections: u32, files: u32) -> Result<()> {
        let connections = connections.saturating_add(SPARE_CONNECTIONS);
        self.site.connections = Some(connections);
        allow_open_files(u64::from(connections) + u64::from(files) + SPARE_FILES)
    }

    pub(crate) fn create_file(&mut self, name: &str, size: u64) -> Result<String> {
        self.noise.write(&self.site.file(name), size)
    }

    /// Requests a file once and compares its digest.
    pub(crate) fn verify(
        &self,
        kind: impl Into<ServerKind>,
        name: &str,
        cell: &Cell,
    ) -> Result<Verification> {
        let work = |_: &RunningServer, host: &Host| host.digest(&format!("/{name}"), cell.size);
        let (arrived, _) = self.with_server(kind, work)?;
        Verification::compare(arrived, &self.sha256, cell.variant.contender)
    }

    /// Starts a server and does `work` on the core of the load. Returns its result, and the
    /// processor seconds of both, inside and outside of any window.
    pub(crate) fn with_server<T: Send>(
        &self,
        kind: impl Into<ServerKind>,
        work: impl FnOnce(&RunningServer, &Host) -> io::Result<T> + Send,
    ) -> Result<(T, f64)> {
        let server = self.site.start(&kind.into())?;
        let host = self.host(&server);
        let started = LoadWindow { server: ServerUsage::zero(), load: Usage::default() };
        let outcome = on_core(self.cores.second, || {
            let found = work(&server, &host)?;
            Ok((found, started.close(&server).cpu_s()))
        });
        outcome.map_err(|error: io::Error| server.failure(&error))
    }

    /// Starts a server for a sample, whose time is that in which `work` watches it.
    pub(crate) fn sample(
        &self,
        contender: Contender,
        work: impl FnOnce(&RunningServer, &Host) -> io::Result<(ResourceUse, Served)> + Send,
    ) -> Result<Measured> {
        let ((spent, served), all_cpu_s) = self.with_server(contender, work)?;
        Ok(spent.measured(spent.elapsed_s(), served, all_cpu_s))
    }

    /// Fails if the run was cancelled.
    pub(crate) fn interrupted(&self) -> io::Result<()> {
        self.context.interrupted().map_err(|_| io::ErrorKind::Interrupted.into())
    }

    /// Returns the system calls of a server during `work`.
    pub(crate) fn counted(
        &self,
        contender: Contender,
        work: impl FnOnce(&RunningServer, &Host) -> io::Result<Counted> + Send,
    ) -> Result<Vec<Counted>> {
        Ok(vec![self.with_server(contender, work)?.0])
    }

    /// Counts the calls of a server while a generator sends requests.
    pub(crate) fn count_requests(
        &self,
        server: &RunningServer,
        tracer: &CallTracer,
        generator: &mut LoadGenerator<'_>,
    ) -> io::Result<Counted> {
        loop {
            let calls = server.calls(tracer, || generator.run_for(self.time()))?;
            // On a busy machine, all that arrives may have been sent before.
            if !calls.is_empty() {
                return Ok(Counted::while_serving(calls, generator.bytes()));
            }
        }
    }
}

/// Large files, each streamed over and over by a separate client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamedFiles {
    pub(crate) count: u32,
    pub(crate) size: u64,
    pub(crate) class: Class,
    /// Whether they are kept out of the page cache.
    pub(crate) is_cold: bool,
}

impl StreamedFiles {
    /// Returns the size of files that can be dropped from the page cache in whole pieces.
    pub(crate) const fn whole(size: u64) -> u64 {
        size.next_multiple_of(PIECE)
    }

    pub(crate) fn name(index: u32) -> String {
        format!("cold-{index}")
    }

    /// Creates those that are missing, and keeps the digest of the last one that it creates.
    pub(crate) fn create(&self, fixture: &mut ServerFixture<'_>) -> Result<()> {
        for name in (0..self.count).map(Self::name) {
            if !fixture.site.file(&name).exists() {
                fixture.sha256 = fixture.create_file(&name, self.size)?;
            }
        }
        Ok(())
    }

    /// Drops them from the page cache, if they are cold.
    pub(crate) fn evict(&self, fixture: &ServerFixture<'_>) -> Result<()> {
        let mut cold = (0..self.count).filter(|_| self.is_cold);
        cold.try_for_each(|index| drop_cached(&fixture.site.file(&Self::name(index))))
    }

    /// Connects clients of the first `count` files.
    pub(crate) fn join(
        &self,
        count: u32,
        fixture: &ServerFixture<'_>,
        generator: &mut LoadGenerator<'_>,
        host: &Host,
    ) -> io::Result<()> {
        for name in (0..count).map(Self::name) {
            let file = File::open(fixture.site.file(&name))?;
            let follower = self.is_cold.then(|| DropBehind::new(file, self.size));
            let spec = RequestSpec { name: &name, size: self.size, class: self.class };
            generator.join(host, spec, follower)?;
        }
        Ok(())
    }
}

impl LoadWindow {
    pub(crate) fn open(server: &RunningServer) -> Self {
        Self { server: server.usage(), load: Usage::of_this_thread() }
    }

    pub(crate) fn close(self, server: &RunningServer) -> ResourceUse {
        let load = Usage::of_this_thread() - self.load;
        ResourceUse { server: server.usage().since(&self.server), load }
    }
}

/// Returns the resources used while a generator runs for this time, and the load of the clients
/// whose latency is measured.
pub(crate) fn during(
    generator: &mut LoadGenerator<'_>,
    server: &RunningServer,
    time: Duration,
) -> io::Result<(ResourceUse, Load)> {
    let (machine, window) = (machine_seconds(), LoadWindow::open(server));
    generator.run_for(time)?;
    let spent = window.close(server);
    let machine_s = machine.and_then(|before| Some(machine_seconds()? - before));
    let load = Load { machine_s, ..generator.load(Class::Hot, spent.elapsed_s()) };
    Ok((spent, load))
}

impl ResourceUse {
    pub(crate) const fn elapsed_s(&self) -> f64 {
        self.server.wall_s
    }

    pub(crate) fn cpu_s(&self) -> f64 {
        self.server.cpu_s + (self.load.user + self.load.system).as_secs_f64()
    }

    /// Returns the result of a sample, in which server and load used `all_cpu_s` altogether.
    pub(crate) fn measured(&self, wall_s: f64, served: Served, all_cpu_s: f64) -> Measured {
        let elapsed_s = self.elapsed_s();
        let server = Side::process(Role::Server, elapsed_s, self.server);
        let thread = Some(ThreadCost::of(&Report::default(), self.load));
        let load = Side { thread, ..Side::new(Role::Client, elapsed_s) };
        Measured {
            served: Some(served),
            besides_cpu_s: all_cpu_s - self.cpu_s(),
            ..Measured::new(wall_s, server, Some(load))
        }
    }
}

const SPARE_CONNECTIONS: u32 = 64;

/// The number of files that programs open for themselves.
pub(crate) const SPARE_FILES: u64 = 128;

/// The warm-up, in which connections are established, caches filled and windows opened.
const WARM_UP: Duration = Duration::from_millis(500);
