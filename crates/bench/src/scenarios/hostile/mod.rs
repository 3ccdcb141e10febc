//! `bench hostile`: a good client among thousands of bad ones: its latency, and the memory and
//! processor time of the server.
//!
//! `loads` has the kinds of bad clients, `connection` what each of their connections can do,
//! `generator` drives them. As the load itself uses a part of a small machine, the good client is
//! also measured while the same load runs against a server that does nothing: that is the floor.
//! Everything stays on loopback, and ends with the sample.

mod connection;
mod generator;
mod loads;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use underpass_sys::set_thread_priority;

use self::generator::BadGenerator;
use self::loads::{BadLoad, load};
use super::requests::SERVER;
use crate::error::{BenchError, Result};
use crate::load::{
    Host, Latencies, LoadWindow, ResourceUse, RunningServer, ServerFixture, accept_any_certificate,
    peak,
};
use crate::options::{Measure, ServerArgs};
use crate::record::{
    BadClients, Cell, Description, GoodClient, Hostile, Record, SERVER_BUSY, Served, Variant,
    metric, unique,
};
use crate::run::{Measured, Scenario, Start, Verification, allow_open_files, poll_until, stay_on};

/// The arguments of `bench hostile`.
#[derive(Debug, Args)]
pub struct HostileArgs {
    /// Measure these kinds of bad clients, one after the other [default: all]
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    loads: Vec<BadClients>,

    /// Give the bad clients N connections, from 64 addresses of loopback
    #[arg(long, value_name = "N", default_value_t = 8000,
        value_parser = clap::value_parser!(u32).range(1..=60_000))]
    connections: u32,

    #[command(flatten)]
    server: ServerArgs,
}

impl Measure for HostileArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let setting = self.server.setting(self.connections);
        let opened = self.server.open(start, &HOSTILE, &[SMALL_BYTES], setting)?;
        let (mut plan, mut fixture, variants) = opened;
        allow_open_files(u64::from(self.connections) * 2 + SPARE_FILES)?;
        fixture.site.encrypt()?;
        fixture.sha256 = fixture.create_file(SMALL, SMALL_BYTES)?;
        let all = if self.loads.is_empty() { BadClients::value_variants() } else { &self.loads };
        for kind in unique(all.iter().copied()) {
            let can = |variant: &&Variant| load(kind).server(variant.contender).is_some();
            let variants = variants.iter().filter(can);
            let cell = |variant| Cell { load: Some(kind), ..Cell::new(SMALL_BYTES, variant) };
            plan.groups.push(variants.copied().map(cell).collect());
        }
        plan.measure(&HOSTILE, &mut AttackedServer(fixture), super::NGINX)
    }
}

/// A server with all kinds of bad clients.
#[derive(Debug)]
struct AttackedServer<'a>(ServerFixture<'a>);

impl Scenario for AttackedServer<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        of(cell).prepare(&mut self.0)
    }

    fn verify(&mut self, _cell: &Cell) -> Result<Verification> {
        // The good client accepts only complete responses.
        Ok(Verification::Arrived(self.0.sha256.clone()))
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        let load = of(cell);
        let spare = if load.fills_server { 0 } else { SPARE_CONNECTIONS };
        self.0.site.connections = Some(self.0.setting.connections + spare);
        self.0.site.is_encrypted = load.is_encrypted;
        self.0.tls = load.is_encrypted.then(accept_any_certificate).transpose()?;
        let kind = load.server(cell.variant.contender);
        let kind =
            kind.ok_or_else(|| BenchError::measuring(cell.variant, "it has no such load"))?;
        let work =
            |server: &RunningServer, host: &Host| self.measure_good_client(&load, server, host);
        let ((spent, bad_cpu_s, hostile), cpu_s) = self.0.with_server(kind, work)?;
        Ok(spent.measured(spent.elapsed_s(), Served::Hostile(hostile), cpu_s + bad_cpu_s))
    }
}

impl AttackedServer<'_> {
    /// Measures the good client alone, beside bad ones at an idle server, and at the same server.
    fn measure_good_client(
        &self,
        load: &BadLoad,
        server: &RunningServer,
        host: &Host,
    ) -> io::Result<(ResourceUse, f64, Hostile)> {
        let time = self.0.time();
        let request = load.good_request(host, &format!("/{SMALL}"));
        let ask = |time| self.ask(host, &request, time);
        ask(WARM_UP)?;
        let alone = ask(time)?;
        let (floor, unanswered, _) = self.beside_nothing(load, host, || ask(time))?;
        let start_bytes = server.memory().resident_bytes;
        let work = || {
            let window = LoadWindow::open(server);
            let beside = ask(time);
            (beside, window.close(server), peak(&server.processes()))
        };
        let ((beside, spent, peak_bytes), bad, generator) = self.beside(load, host, work)?;
        let hostile = Hostile {
            alone,
            beside: beside?,
            floor: Some(floor?),
            open: generator.open.into_inner(),
            begun: generator.begun.into_inner(),
            start_bytes,
            peak_bytes,
        };
        Ok((spent, bad + unanswered, hostile))
    }

    /// Does `work` while bad clients, which give way to it, are at a server that just closes.
    fn beside_nothing<T>(
        &self,
        load: &BadLoad,
        host: &Host,
        work: impl FnOnce() -> T,
    ) -> io::Result<(T, f64, BadGenerator)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr()?.port());
        std::thread::scope(|scope| {
            let core = self.0.cores.first;
            scope.spawn(move || {
                stay_on(core);
                // A connection from a special address ends the server.
                for stream in listener.incoming().flatten() {
                    if stream.peer_addr().is_ok_and(|peer| peer.ip() == Ipv4Addr::LOCALHOST) {
                        break;
                    }
                }
            });
            let outcome = self.beside(load, &Host { address, ..host.clone() }, work);
            let _ = TcpStream::connect(address);
            outcome
        })
    }

    /// Does `work` beside bad clients at a server; returns also what they cost and did.
    fn beside<T>(
        &self,
        load: &BadLoad,
        host: &Host,
        work: impl FnOnce() -> T,
    ) -> io::Result<(T, f64, BadGenerator)> {
        let (core, count) = (self.0.cores.second, self.0.setting.connections);
        let generator = BadGenerator::default();
        let (done, usage) = std::thread::scope(|scope| {
            let bad = scope.spawn(|| {
                stay_on(core);
                // A failure changes little.
                let _ = set_thread_priority(NICENESS, SLICE);
                generator.run(load, host, count)
            });
            poll_until(MAX_ARRIVAL, || generator.has_arrived.load(Ordering::Relaxed).then_some(()));
            let done = work();
            generator.is_over.store(true, Ordering::Relaxed);
            (done, bad.join())
        });
        let usage = usage.map_err(|_| io::Error::other("the load panicked"))?;
        Ok((done, (usage.user + usage.system).as_secs_f64(), generator))
    }

    /// Asks for a small file for `time`, each time on a new connection, and waits for the last one.
    fn ask(&self, host: &Host, request: &[u8], time: Duration) -> io::Result<GoodClient> {
        let mut latencies = Latencies::default();
        let mut failed = 0;
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.0.interrupted()?;
            let asked = Instant::now();
            match host.get(request, SMALL_BYTES) {
                Ok(()) => latencies.add(asked.elapsed()),
                Err(_) => failed += 1,
            }
            std::thread::sleep(PAUSE.saturating_sub(asked.elapsed()));
        }
        Ok(GoodClient { answered: latencies.total(), failed, latency: latencies.latency() })
    }
}

fn of(cell: &Cell) -> BadLoad {
    load(cell.load.unwrap_or(BadClients::Idle))
}

pub(super) const HOSTILE: Description = Description {
    name: "hostile",
    command: "hostile",
    caption: |record| {
        let connections = record.arguments.serve.map_or(0, |setting| setting.connections);
        format!(
            "A good client, alone and among up to {connections} connections of bad ones; the floor \
             is the same load at a server that only accepts and closes"
        )
    },
    metrics: &[
        &metric!("alone-p50": "Latency of half of the requests of a good client, alone",
            "p50 alone", Seconds, Table;
            Served::Hostile(found) => found.alone.latency?.p50_s),
        &metric!("beside-p50": "Latency of half of the requests of a good client beside bad ones",
            "p50 beside", Seconds, Table;
            Served::Hostile(found) => found.beside.latency?.p50_s),
        &metric!("alone-p99": "Latency of 99 of 100 requests of a good client, alone",
            "p99 alone", Seconds, Table;
            Served::Hostile(found) => found.alone.latency?.p99_s),
        &metric!("floor": "Latency of 99 of 100 requests of a good client beside the load alone",
            "p99 floor", Seconds, Table;
            Served::Hostile(found) => found.floor?.latency?.p99_s),
        &metric!("beside": "99 of 100 requests of a good client beside bad ones",
            "p99 beside", Seconds, Chart;
            Served::Hostile(found) => found.beside.latency?.p99_s),
        &metric!("slowdown": "Latency beside bad clients, as a multiple of that alone",
            "beside/alone", Times, Table;
            Served::Hostile(found) => found.beside.latency?.p99_s / found.alone.latency?.p99_s),
        &metric!("failed": "Requests of a good client that failed beside bad ones",
            "failed", Count, Table, neutral;
            Served::Hostile(found) => found.beside.failed as f64),
        &metric!("memory-start": "Resident memory before bad clients come",
            "memory", Bytes, Table, neutral;
            Served::Hostile(found) => found.start_bytes as f64),
        &metric!("memory-hostile": "The most resident memory beside bad clients",
            "at most", Bytes, Chart, neutral, measured;
            Served::Hostile(found) => found.peak_bytes as f64),
        &SERVER_BUSY,
        &metric!("open": "Connections that bad clients have open at the end",
            "open", Count, Table, neutral;
            Served::Hostile(found) => f64::from(found.open)),
        &metric!("begun": "Connections that bad clients have begun", "begun", Count, Table, neutral;
            Served::Hostile(found) => found.begun as f64),
    ],
    ..SERVER
};

const SMALL: &str = "small";

const SMALL_BYTES: u64 = 10 << 10;

/// Connections that the server may have in addition to those of bad clients that keep it busy.
const SPARE_CONNECTIONS: u32 = 64;

/// The number of files that programs open for themselves.
const SPARE_FILES: u64 = 512;

const WARM_UP: Duration = Duration::from_millis(300);

/// The time that the bad clients may take to connect before the good one is measured.
const MAX_ARRIVAL: Duration = Duration::from_secs(10);

/// The bad clients give way to the good one, as they share its core.
const NICENESS: i32 = 19;

/// Their time slice: longer than the default, so that the good one does not wait for its end.
const SLICE: Duration = Duration::from_millis(10);

/// The pause between requests of the good client, so that it is not a load itself.
const PAUSE: Duration = Duration::from_millis(2);
