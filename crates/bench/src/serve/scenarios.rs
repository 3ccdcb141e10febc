//! The scenarios with servers, from what was typed to a record.

use std::sync::atomic::AtomicBool;

use super::arguments::{
    Chosen, CommonArgs, FairnessArgs, HandshakesArgs, IdleArgs, RequestsArgs, ScaleArgs, ServeArgs,
};
use super::course::Stage;
use super::fairness::Fairness;
use super::idle::Idle;
use super::nginx;
use super::record::Setting;
use super::requests::Requests;
use super::scale::Scale;
use super::server::Site;
use super::system::{SystemCongestion, allow_open_files};
use super::wire;
use crate::child::Cores;
use crate::counted::Missing;
use crate::counter::Counter;
use crate::data::Noise;
use crate::environment::survey;
use crate::error::{BenchError, Result, plain};
use crate::plan::Variant;
use crate::record::{Arguments, Environment, Over, Receivers, Record, Role, Scenario};
use crate::rounds::{Course, Results, Schedule};
use crate::scenarios::{begin, largest, once};
use crate::transfer::{find, version};
use crate::way::{Step, Way};

/// Measures what was typed.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn run(args: &ServeArgs, cancel: &AtomicBool) -> Result<Record> {
    match args.chosen() {
        Chosen::Requests(args) => requests(args, cancel),
        Chosen::Fairness(args) => fairness(args, cancel),
        Chosen::Handshakes(args) => handshakes(args, cancel),
        Chosen::Idle(args) => idle(args, cancel),
    }
}

fn requests(args: &RequestsArgs, cancel: &AtomicBool) -> Result<Record> {
    let run = Run::begin(Scenario::Serve, &args.common, &args.sizes)?;
    run.stage.site.folder.require_space(largest(&args.sizes))?;
    let setting = Setting { tls: args.tls, ..setting(args.connections, &args.common) };
    run.measure(setting, cancel, |stage| Requests { stage, come_anew: false })
}

fn handshakes(args: &HandshakesArgs, cancel: &AtomicBool) -> Result<Record> {
    let run = Run::begin(Scenario::ServeHandshakes, &args.common, &args.sizes)?;
    run.stage.site.folder.require_space(largest(&args.sizes))?;
    let setting = Setting { tls: true, ..setting(args.connections, &args.common) };
    run.measure(setting, cancel, |stage| Requests { stage, come_anew: true })
}

fn fairness(args: &FairnessArgs, cancel: &AtomicBool) -> Result<Record> {
    let mut run = Run::begin(Scenario::ServeFairness, &args.common, &[args.size])?;
    // Whole pieces, as they are thrown out of the page cache.
    let stream_bytes = args.stream_size.next_multiple_of(1 << 20);
    let all = stream_bytes.saturating_mul(args.streams.into());
    run.stage.site.folder.require_space(all.saturating_add(args.size))?;
    run.stage.noise = Noise::new(stream_bytes.max(args.size))?;
    run.record.arguments.cold = true;
    let setting = Setting {
        streams: Some(args.streams),
        stream_bytes: Some(stream_bytes),
        ..setting(args.connections, &args.common)
    };
    run.measure(setting, cancel, Fairness)
}

fn idle(args: &IdleArgs, cancel: &AtomicBool) -> Result<Record> {
    let mut run = Run::begin(Scenario::ServeIdle, &args.common, &[args.size])?;
    run.stage.site.folder.require_space(args.size)?;
    let connections = args.idle.saturating_add(args.slow).saturating_add(SPARE_CONNECTIONS);
    // A server may have the file open for each download.
    allow_open_files(u64::from(connections) + u64::from(args.slow) + SPARE_FILES)?;
    run.stage.site.connections = Some(connections);
    let setting =
        Setting { idle: Some(args.idle), slow: Some(args.slow), ..setting(1, &args.common) };
    run.measure(setting, cancel, Idle)
}

/// What was asked for, without what only some scenarios have.
pub(crate) fn setting(connections: u32, args: &CommonArgs) -> Setting {
    Setting {
        connections,
        seconds: args.seconds,
        log: args.log,
        tls: false,
        streams: None,
        stream_bytes: None,
        idle: None,
        sparse_from: None,
        slow: None,
    }
}

/// Measures how cost grows.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn scale(args: &ScaleArgs, cancel: &AtomicBool) -> Result<Record> {
    let mut sizes = once(&args.sizes);
    if !sizes.contains(&args.size) {
        sizes.push(args.size);
    }
    let mut run = Run::begin(Scenario::Scale, &args.common, &sizes)?;
    let is_written = |size: &&u64| **size < args.sparse_from;
    run.stage.site.folder.require_space(sizes.iter().filter(is_written).sum())?;
    let crowds = once(&args.connections);
    let most = crowds.iter().chain([&args.at]).copied().max().unwrap_or(1);
    run.stage.site.connections = Some(most.saturating_add(SPARE_CONNECTIONS));
    // A server may have the file open for each connection.
    allow_open_files(u64::from(most) * 2 + SPARE_FILES)?;
    let mut setting = setting(args.at, &args.common);
    let has_sparse = sizes.iter().any(|size| *size >= args.sparse_from);
    setting.sparse_from = has_sparse.then_some(args.sparse_from);
    let points = crowds.into_iter().map(|connections| (args.size, connections));
    let mut points: Vec<_> = points.collect();
    for point in once(&args.sizes).into_iter().map(|size| (size, args.at)) {
        if !points.contains(&point) {
            points.push(point);
        }
    }
    run.measure_by(setting, cancel, |stage, turns| Scale { stage, points }.run(turns))
}

/// A run that has found its place but not yet measured anything.
pub(crate) struct Run {
    record: Record,
    stage: Prepared,
    servers: Vec<Way>,
}

/// What of a stage does not depend on what the scenario makes of it.
struct Prepared {
    site: Site,
    noise: Noise,
    cores: Cores,
    congestion: SystemCongestion,
    counter: Option<Counter>,
}

impl Run {
    /// Finds the servers and a place for their files.
    pub(crate) fn begin(scenario: Scenario, args: &CommonArgs, sizes: &[u64]) -> Result<Self> {
        let nginx = nginx::version();
        let (servers, missing) = servers(args, nginx.is_some())?;
        let programs = servers.iter().filter(|way| matches!(way, Way::Dufs | Way::Miniserve));
        let programs = programs.filter_map(|way| version(&find(&way.to_string())?)).collect();
        let cores = Cores::available();
        // What a machine does by itself, interrupts above all, it does on its first core.
        let cores = Cores { first: cores.second, second: cores.first, ..cores };
        let site = Site::create(&args.run.dir, args.log, Some(cores.first))?;
        let environment =
            Environment { nginx, programs, ..survey(cores, site.folder.path(), None) };
        let congestion = SystemCongestion::choose(&args.congestion)?;
        let environment = Environment { congestion: Some(congestion.name.clone()), ..environment };
        let arguments = Arguments {
            sizes: once(sizes),
            mechanisms: servers.clone(),
            steps: vec![Step::Default],
            runs: args.run.runs,
            warmup: args.run.warmup,
            cold: false,
            side: Role::Server,
            sink: None,
            responses: None,
            serve: None,
            transfers: None,
            over: Over::Loopback,
            receivers: Receivers::Ours,
        };
        let noise = Noise::new(largest(sizes))?;
        let baseline = Variant::new(Way::Nginx, Step::Default);
        let record = begin(scenario, arguments, environment, baseline);
        // Of nginx the other scenarios tell it by a version that is not there.
        let is_told = |one: &Missing| scenario == Scenario::Scale || one.name != "nginx";
        let (counter, uncounted) = Counter::unless(args.no_count, &site.folder);
        let missing = missing.into_iter().filter(is_told).chain(uncounted).collect();
        let record = Record { missing, ..record };
        Ok(Self { record, stage: Prepared { site, noise, cores, congestion, counter }, servers })
    }

    /// Measures the servers in turn.
    fn measure<'a, C: Course>(
        self,
        setting: Setting,
        cancel: &'a AtomicBool,
        course: impl FnOnce(Stage<'a>) -> C,
    ) -> Result<Record> {
        self.measure_by(setting, cancel, |stage, schedule| schedule.run(&mut course(stage), cancel))
    }

    /// Lets `work` measure what is to be measured.
    pub(crate) fn measure_by<'a>(
        self,
        setting: Setting,
        cancel: &'a AtomicBool,
        work: impl FnOnce(Stage<'a>, &Schedule) -> Result<Results>,
    ) -> Result<Record> {
        let Self { mut record, stage, servers } = self;
        record.arguments.serve = Some(setting);
        let Prepared { mut site, noise, cores, congestion, counter } = stage;
        if setting.tls {
            site.encrypt()?;
        }
        let stage = Stage {
            site,
            noise,
            setting,
            congestion: congestion.name.clone(),
            tls: if setting.tls { Some(tls()?) } else { None },
            cores,
            counter,
            cancel,
            sha256: String::new(),
        };
        let schedule = Schedule {
            sizes: record.arguments.sizes.clone(),
            variants: servers.iter().map(|way| Variant::new(*way, Step::Default)).collect(),
            warmup: record.arguments.warmup,
            runs: record.arguments.runs,
        };
        let Results { cells, samples, counted } = work(stage, &schedule)?;
        Ok(Record { cells, samples, counted, ..record })
    }
}

/// The servers asked for, each once, and those that are not there.
fn servers(args: &CommonArgs, has_nginx: bool) -> Result<(Vec<Way>, Vec<Missing>)> {
    let (mut servers, mut missing) = (Vec::new(), Vec::new());
    for way in once(&args.server).into_iter().map(Way::from) {
        let name = way.to_string();
        let is_there = match way {
            Way::Nginx => has_nginx,
            Way::Underpass => true,
            _ => find(&name).is_some(),
        };
        match is_there {
            true => servers.push(way),
            false => missing.push(Missing { name, why: "not installed".to_owned() }),
        }
    }
    match missing.first() {
        Some(Missing { name, .. }) if servers.is_empty() => {
            Err(BenchError::Usage(format!("{name} is not installed")))
        }
        _ => Ok((servers, missing)),
    }
}

/// How the load encrypts.
pub(crate) fn tls() -> Result<wire::Tls> {
    wire::tls().map_err(unusable)
}

fn unusable(error: std::io::Error) -> BenchError {
    BenchError::Child { what: "TLS of the load".to_owned(), said: plain(&error) }
}

/// Beside the crowds: those that ask how soon they are answered.
const SPARE_CONNECTIONS: u32 = 64;

/// Files that programs have open for themselves.
const SPARE_FILES: u64 = 128;
