//! `bench serve idle`: thousands of idle keep-alive connections, and stalled downloads: their
//! memory, and the latency of a new request meanwhile.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use clap::Args;

use super::requests::SERVER;
use crate::error::Result;
use crate::load::{
    Host, Latencies, LoadConnection, LoadWindow, ResourceUse, RunningServer, ServerFixture,
    require_status,
};
use crate::options::{Measure, ServerArgs, bytes, number};
use crate::record::{
    CALLS, Cell, Counted, Description, IdleFound, Latency, Record, Role, Served, Setting, metric,
};
use crate::run::{CallTracer, Measured, Scenario, Start, Verification};

#[derive(Debug, Args)]
pub(super) struct IdleArgs {
    /// Keep N connections open after one request each
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = number(1))]
    idle: u32,

    /// Begin N downloads that stop after a few KiB
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = number(1))]
    slow: u32,

    /// Size of the file that is downloaded slowly
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = bytes)]
    size: u64,

    #[command(flatten)]
    server: ServerArgs,
}

impl Measure for IdleArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let setting =
            Setting { idle: Some(self.idle), slow: Some(self.slow), ..self.server.setting(1) };
        let opened = self.server.open(start, &IDLE, &[self.size], setting)?;
        let (mut plan, mut fixture, variants) = opened;
        fixture.site.folder.require_space(self.size)?;
        // A server may have the file open for each download.
        fixture.allow(self.idle.saturating_add(self.slow), self.slow)?;
        plan.for_sizes(&variants);
        plan.measure(&IDLE, &mut Idle(fixture), super::NGINX)
    }
}

#[derive(Debug)]
struct Idle<'a>(ServerFixture<'a>);

impl Scenario for Idle<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        self.0.create_file(SMALL, SMALL_BYTES)?;
        self.0.sha256 = self.0.create_file(LARGE, cell.size)?;
        Ok(())
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        self.0.verify(cell.variant.contender, LARGE, cell)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        let work = |server: &RunningServer, host: &Host| self.connections(server, host);
        self.0.sample(cell.variant.contender, work)
    }

    fn count(&mut self, cell: &Cell, tracer: &CallTracer) -> Result<Vec<Counted>> {
        self.0.counted(cell.variant.contender, |server, host| {
            let calls = server.calls(tracer, || self.connections(server, host).map(drop))?;
            Ok(Counted::new(Role::Server, calls))
        })
    }
}

impl Idle<'_> {
    fn connections(
        &self,
        server: &RunningServer,
        host: &Host,
    ) -> io::Result<(ResourceUse, Served)> {
        let setting = self.0.setting;
        let small = host.request(&format!("/{SMALL}"));
        host.get(&small, SMALL_BYTES)?;
        let window = LoadWindow::open(server);
        let start = server.memory();

        let mut idle = Vec::new();
        let count = setting.idle.unwrap_or(0);
        for index in 0..count {
            self.0.interrupted()?;
            let mut client = LoadConnection::to(host, source(index))?;
            client.ask_whole(&small, SMALL_BYTES, |_| {})?;
            idle.push(client);
        }
        std::thread::sleep(SETTLE);
        let with_idle = server.memory();

        let mut slow = Vec::new();
        for index in 0..setting.slow.unwrap_or(0) {
            self.0.interrupted()?;
            slow.push(begin_download(host, source(count + index))?);
        }
        std::thread::sleep(SETTLE);
        let with_slow = server.memory();

        let answers = answers(host, &small)?;
        // Idle connections must still be served, or the measured memory would be of fewer.
        if let Some(client) = idle.first_mut() {
            client.ask_whole(&small, SMALL_BYTES, |_| {})?;
        }
        let spent = window.close(server);
        drop((idle, slow));
        Ok((spent, Served::Idle(IdleFound { start, idle: with_idle, slow: with_slow, answers })))
    }
}

/// Requests the large file, and stops reading after its first bytes.
fn begin_download(host: &Host, from: Ipv4Addr) -> io::Result<TcpStream> {
    let mut stream = host.connect(from, Some(SLOW_BUFFER))?;
    stream.write_all(&host.request(&format!("/{LARGE}")))?;
    let mut begin = [0; 4 << 10];
    stream.read_exact(&mut begin)?;
    require_status(&begin, b"HTTP/1.1 200 ")?;
    Ok(stream)
}

/// Measures how soon new connections are answered, one after the other.
fn answers(host: &Host, request: &[u8]) -> io::Result<Latency> {
    let mut latencies = Latencies::default();
    for _ in 0..ANSWERS {
        let started = Instant::now();
        host.get(request, SMALL_BYTES)?;
        latencies.add(started.elapsed());
    }
    latencies.latency().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Returns the loopback address of a connection: the next one before the ports of one are used up.
fn source(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + index / PORTS)
}

const LARGE: &str = "large";

const SMALL: &str = "small";

const SMALL_BYTES: u64 = 1 << 10;

/// The receive buffer of a slow client, so that the server has to keep what is sent.
const SLOW_BUFFER: usize = 16 << 10;

/// The number of ports used of one address: fewer than even a narrow `ip_local_port_range` has.
const PORTS: u32 = 2_000;

/// The number of new connections that are timed.
const ANSWERS: u32 = 50;

/// The time in which a server finishes its deferred work for new connections.
const SETTLE: Duration = Duration::from_millis(500);

pub(super) const IDLE: Description = Description {
    name: "serve_idle",
    command: "serve idle",
    caption: |record| {
        let setting = record.arguments.serve.unwrap_or_default();
        let (idle, slow) = (setting.idle.unwrap_or(0), setting.slow.unwrap_or(0));
        format!(
            "Memory of all processes of the server together: after one request, with {idle} idle \
             connections, and with {slow} slow downloads added; then the time from connecting to the end \
             of a small file, one after the other"
        )
    },
    metrics: &[
        &CALLS,
        &metric!("memory-start": "Resident memory after one request",
            "after one", Bytes, Chart, measured;
            Served::Idle(found) => found.start.resident_bytes as f64),
        &metric!("memory-idle": "Resident memory with idle connections",
            "with idle", Bytes, Main, measured;
            Served::Idle(found) => found.idle.resident_bytes as f64),
        &metric!("memory-slow": "Resident memory with slow downloads besides",
            "with slow", Bytes, Finding, measured;
            Served::Idle(found) => found.slow.resident_bytes as f64),
        &metric!("pss-start": "Proportional memory after one request",
            "Pss after one", Bytes, Table, measured;
            Served::Idle(found) => found.start.proportional_bytes as f64),
        &metric!("pss-idle": "Proportional memory with idle connections",
            "Pss with idle", Bytes, Table, measured;
            Served::Idle(found) => found.idle.proportional_bytes as f64),
        &metric!("pss-slow": "Proportional memory with slow downloads besides",
            "Pss with slow", Bytes, Table, measured;
            Served::Idle(found) => found.slow.proportional_bytes as f64),
        &metric!("answers": "Time to answer one more connection", "one more", Seconds, Main;
            Served::Idle(found) => found.answers.p50_s),
        &metric!("answers-max": "The longest time to answer one more connection",
            "longest", Seconds, Table;
            Served::Idle(found) => found.answers.max_s),
    ],
    ..SERVER
};
