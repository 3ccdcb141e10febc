//! `bench origin`: caches in front of an origin. A crowd requests an object that is not cached, and
//! again when it is; ranges at random of a large object; a hot set during a scan of ten times the
//! budget.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;

use super::super::requests::SERVER;
use crate::error::{BenchError, Result, plain};
use crate::load::{
    CACHE, CacheSetup, CountingOrigin, Host, Latencies, LoadConnection, LoadWindow, ResourceUse,
    ResponseFault, RunningServer, ServerFixture, ServerKind, require_status,
};
use crate::options::{Measure, Named, ServerArgs, SystemArgs, among, bytes, bytes_from, number};
use crate::record::{
    Cell, Contender, Description, OriginFound, RangesFound, Record, Served, Setting, metric,
    short_size,
};
use crate::run::{Measured, Scenario, Start, Verification, sparse};

/// The arguments of `bench origin`.
#[derive(Debug, Args)]
pub struct OriginArgs {
    /// Measure these caches; those that are not installed are left out
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = among(CACHES))]
    #[arg(default_value = "nginx,nginx-slice,squid,ats,underpass,varnish")]
    server: Vec<Contender>,

    /// Size of the object that all clients request at once
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = bytes)]
    size: u64,

    /// Number of clients that request the object at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = number(1))]
    clients: u32,

    /// Bytes per second that the origin sends to each of these clients
    ///
    /// Times the number of clients, it has to be less than this machine can send to itself;
    /// otherwise the clients are slower than a single one, with any cache.
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = bytes)]
    origin_rate: u64,

    /// Size of the object of which ranges are requested
    #[arg(long, value_name = "SIZE", default_value = "10G", value_parser = bytes_from(RANGE))]
    large: u64,

    /// Bytes that a cache may keep during the scan
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = bytes_from(MIN_BUDGET))]
    budget: u64,

    #[command(flatten)]
    system: SystemArgs,
}

const CACHES: &[Named] = &[
    ("ats", Contender::TrafficServer, "Apache Traffic Server, read while it writes"),
    ("nginx", Contender::NginxCache, "nginx with proxy_cache and proxy_cache_lock"),
    ("nginx-slice", Contender::NginxSlice, "The same with slices of 1 MiB"),
    ("squid", Contender::Squid, "Squid with collapsed forwarding"),
    ("underpass", Contender::Underpass, "`underpass serve --origin`"),
    ("varnish", Contender::Varnish, "Varnish with a file as its storage"),
];

impl Measure for OriginArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let system = SystemArgs { no_count: true, ..self.system.clone() };
        let servers = ServerArgs { server: self.server.clone(), seconds: 1.0, log: false, system };
        let setting = Setting { seconds: 1.0, connections: self.clients, ..Setting::default() };
        let (mut plan, fixture, variants) = servers.open(start, &ORIGIN, &[self.size], setting)?;
        fixture.site.folder.require_space(self.size * 3 + self.budget * 2)?;
        plan.for_sizes(&variants);
        let origin = CountingOrigin::start(&fixture.site.file(""), self.origin_rate);
        let origin = origin.map_err(|error| BenchError::measuring("the origin", plain(&error)))?;
        let baseline = super::super::first(&variants)?;
        plan.measure(&ORIGIN, &mut Origin { fixture, origin, args: self }, baseline)
    }
}

#[derive(Debug)]
struct Origin<'a> {
    fixture: ServerFixture<'a>,
    origin: CountingOrigin,
    args: &'a OriginArgs,
}

impl Scenario for Origin<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        self.fixture.create_file(UNIT, UNIT_BYTES)?;
        sparse(&self.fixture.site.file(LARGE), self.args.large)?;
        self.fixture.sha256 = self.fixture.create_file(CROWD, cell.size)?;
        Ok(())
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        self.origin.set_rate(u64::MAX);
        self.fixture.verify(self.setup(cell.variant.contender, u64::MAX), CROWD, cell)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        let contender = cell.variant.contender;
        let mut found = OriginFound::default();
        let crowd = |server: &RunningServer, host: &Host| {
            let spent = self.crowd(cell.size, (server, host), &mut found)?;
            if CacheSetup::fetches_ranges(contender) {
                found.ranges = Some(self.ranges(host)?);
            }
            Ok(spent)
        };
        let (spent, all_cpu_s) =
            self.fixture.with_server(self.setup(contender, u64::MAX), crowd)?;
        let folder = self.fixture.site.folder.file(CACHE);
        let scan = |_: &RunningServer, host: &Host| self.scan(host, &folder);
        let ((hot, kept), _) =
            self.fixture.with_server(self.setup(contender, self.args.budget), scan)?;
        (found.hot, found.kept) = (hot, (kept, self.args.budget));
        let plain = |_: &RunningServer, host: &Host| self.request_from_all(cell.size, host);
        let (plain, _) = self.fixture.with_server(Contender::Underpass, plain)?;
        found.plain_s = plain.as_secs_f64();
        Ok(spent.measured(spent.elapsed_s(), Served::Origin(found), all_cpu_s))
    }
}

impl Origin<'_> {
    fn setup(&self, contender: Contender, budget: u64) -> ServerKind {
        let budget = budget.min(self.args.size * 2 + (1 << 30));
        ServerKind::Cache(CacheSetup { contender, origin: self.origin.address, budget })
    }

    /// Measures one client at the origin, then the crowd at the cache, and the crowd once more.
    fn crowd(
        &self,
        size: u64,
        (server, host): (&RunningServer, &Host),
        found: &mut OriginFound,
    ) -> io::Result<ResourceUse> {
        self.origin.set_rate(self.args.origin_rate);
        let started = Instant::now();
        ask(&Host { address: self.origin.address, ..host.clone() }, size)?;
        found.direct_s = started.elapsed().as_secs_f64();
        let window = LoadWindow::open(server);
        let (before, usage) = (self.origin.bytes(), server.usage());
        found.crowd_s = self.request_from_all(size, host)?.as_secs_f64();
        let filled = server.usage();
        found.crowd_cpu_s = filled.since(&usage).cpu_s;
        found.crowd_origin_bytes = self.origin.bytes() - before;
        self.origin.set_rate(u64::MAX);
        found.warm_s = self.request_from_all(size, host)?.as_secs_f64();
        found.warm_cpu_s = server.usage().since(&filled).cpu_s;
        found.memory = server.memory();
        Ok(window.close(server))
    }

    /// Makes all clients request the object at once; returns the time until the last one has it.
    fn request_from_all(&self, size: u64, host: &Host) -> io::Result<Duration> {
        let started = Instant::now();
        std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..self.args.clients).map(|_| scope.spawn(|| ask(host, size))).collect();
            let mut outcomes = clients.into_iter().map(|client| client.join());
            outcomes.try_for_each(|outcome| outcome.expect("a client does not panic"))
        })
        .map(|()| started.elapsed())
    }

    /// Requests ranges of 1 MiB at random, from the cache and from the origin itself.
    fn ranges(&self, host: &Host) -> io::Result<RangesFound> {
        let direct = Host { address: self.origin.address, ..host.clone() };
        let (mut first, mut direct_first) = (Latencies::default(), Latencies::default());
        let (mut seed, mut origin_bytes) = (1_u64, 0);
        for _ in 0..RANGES {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = (seed >> 11) % (self.args.large.saturating_sub(RANGE) + 1);
            direct_first.add(range(&direct, start)?);
            let before = self.origin.bytes();
            first.add(range(host, start)?);
            origin_bytes += self.origin.bytes() - before;
        }
        let half = |latencies: &Latencies| latencies.latency().map_or(0.0, |it| it.p50_s);
        Ok(RangesFound {
            asked_bytes: RANGES * RANGE,
            origin_bytes,
            first_s: half(&first),
            direct_first_s: half(&direct_first),
        })
    }

    /// Requests a hot set of half the budget during a scan of ten times the budget. Returns the
    /// requests for the hot set, how many of them reached the origin, and the peak bytes on disk.
    fn scan(&self, host: &Host, folder: &Path) -> io::Result<((u64, u64), u64)> {
        let mut client = LoadConnection::to(host, Ipv4Addr::LOCALHOST)?;
        let mut get = |path: String| client.ask_whole(&host.request(&path), UNIT_BYTES, |_| {});
        let hot = self.args.budget / UNIT_BYTES / 2;
        for number in (0..hot).cycle().take(3 * hot as usize) {
            get(format!("/{UNIT}/hot/{number}"))?;
        }
        let (mut requests, mut missed, mut kept) = (0, 0, 0);
        for number in 0..10 * self.args.budget / UNIT_BYTES {
            get(format!("/{UNIT}/scan/{number}"))?;
            if number % SCANNED == 0 {
                let before = self.origin.requests();
                for number in 0..hot {
                    get(format!("/{UNIT}/hot/{number}"))?;
                }
                (requests, missed) = (requests + hot, missed + self.origin.requests() - before);
                kept = kept.max(used(folder));
            }
        }
        Ok(((requests, missed.min(requests)), kept))
    }
}

fn ask(host: &Host, size: u64) -> io::Result<()> {
    host.get(&host.request(&format!("/{CROWD}")), size)
}

/// Requests a range; returns the time until its first bytes arrive.
fn range(host: &Host, start: u64) -> io::Result<Duration> {
    let mut stream: TcpStream = host.connect(Ipv4Addr::LOCALHOST, None)?;
    let (started, end) = (Instant::now(), start + RANGE - 1);
    let request = format!(
        "GET /{LARGE} HTTP/1.1\r\nHost: {}\r\nRange: bytes={start}-{end}\r\nConnection: close\r\n\r\n",
        host.address
    );
    stream.write_all(request.as_bytes())?;
    let mut buffer = vec![0; 64 << 10];
    let mut got = stream.read(&mut buffer)?;
    let first = started.elapsed();
    require_status(&buffer[..got], b"HTTP/1.1 206 ")?;
    while (got as u64) < RANGE {
        match stream.read(&mut buffer)? {
            0 => return Err(ResponseFault::End.into()),
            read => got += read,
        }
    }
    Ok(first)
}

/// Returns the bytes that the files of a folder take on the disk.
fn used(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => used(&entry.path()),
        Ok(found) => found.blocks() * 512,
        Err(_) => 0,
    });
    bytes.sum()
}

const CROWD: &str = "crowd";

const LARGE: &str = "large";

/// The file behind all objects of the hot set and the scan.
const UNIT: &str = "unit";

const UNIT_BYTES: u64 = 256 << 10;

/// The minimum budget of which half holds an object.
const MIN_BUDGET: u64 = 2 * UNIT_BYTES;

/// The number of ranges that are requested one after the other, and their size.
const RANGES: u64 = 64;
const RANGE: u64 = 1 << 20;

/// Objects of the scan between two rounds of the hot set.
const SCANNED: u64 = 40;

pub(in crate::scenarios) const ORIGIN: Description = Description {
    name: "origin",
    command: "origin",
    expected: None,
    caption: |record| {
        let clients = record.arguments.serve.unwrap_or_default().connections;
        let size = record.sizes().first().map_or_else(String::new, |size| short_size(*size));
        format!(
            "{clients} clients request one object of {size} that the cache does not have, and once \
             more; ranges of 1 MiB at random, where less than the whole object is fetched; a hot \
             set of half the budget during a scan of ten times the budget"
        )
    },
    metrics: &[
        &metric!("crowd-bytes": "Bytes of the origin for the crowd, as a multiple of the object",
        "origin bytes", Times, Main;
        |record, sample| match sample.served? {
            Served::Origin(found) =>
                Some(found.crowd_origin_bytes as f64 / record.cells[sample.cell].size as f64),
            _ => None,
        }),
        &metric!("crowd": "Time until the last of the crowd has it, as a multiple of one client's at the origin",
            "crowd/direct", Times, Finding;
            Served::Origin(found) => found.crowd_s / found.direct_s),
        &metric!("crowd-cpu": "Processor time for the crowd", "crowd cpu", Seconds, Chart, measured;
            Served::Origin(found) => found.crowd_cpu_s),
        &metric!("warm": "Time until each of the crowd has it once more", "warm", Seconds, Main;
            Served::Origin(found) => found.warm_s),
        &metric!("warm-cpu": "Processor time for hits", "warm cpu", Seconds, Chart, measured;
            Served::Origin(found) => found.warm_cpu_s),
        &metric!("warm-plain": "Throughput of hits, as a part of that of underpass serve",
            "warm/serve", Times, Chart, more;
            Served::Origin(found) => found.plain_s / found.warm_s),
        &metric!("range-bytes": "Bytes of the origin for ranges, as a multiple of those asked for",
            "range bytes", Times, Chart;
            Served::Origin(OriginFound { ranges: Some(ranges), .. }) =>
                ranges.origin_bytes as f64 / ranges.asked_bytes as f64),
        &metric!("range-first": "Time to the first byte of a range, beyond the origin's",
            "first byte", Seconds, Chart;
            Served::Origin(OriginFound { ranges: Some(ranges), .. }) =>
                ranges.first_s - ranges.direct_first_s),
        &metric!("hot": "Hits of the hot set beside the scan", "hot hits", Percent, Main, more;
            Served::Origin(OriginFound { hot: (requests, missed), .. }) =>
                1.0 - missed as f64 / requests as f64),
        &metric!("kept": "The most bytes on the disk, as a part of the budget",
            "of budget", Times, Table;
            Served::Origin(OriginFound { kept: (kept, budget), .. }) => kept as f64 / budget as f64),
        &metric!("memory": "Resident memory after the crowd", "memory", Bytes, Chart, measured;
            Served::Origin(found) => found.memory.resident_bytes as f64),
    ],
    ..SERVER
};
