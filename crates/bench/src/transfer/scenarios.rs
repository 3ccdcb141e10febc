//! The scenarios with clients, from what was typed to a record.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::arguments::{CommonArgs, GetArgs, PutArgs, TreeArgs};
use super::clients::{DUFS, NGINX, Words, available, find, programs, version};
use super::forest::Forest;
use super::get::{self, Get};
use super::put::{self, Put};
use super::record::{Commands, Pin, Transfers};
use super::stage::Stage;
use super::tree::{self, Tree};
use crate::child::Cores;
use crate::counter::Counter;
use crate::data::Noise;
use crate::environment::survey;
use crate::error::{BenchError, Result};
use crate::plan::Variant;
use crate::record::{Arguments, Environment, Over, Receivers, Record, Role, Scenario};
use crate::rounds::{Course, Results, Schedule};
use crate::scenarios::{begin, largest, once};
use crate::serve::{Kind, Site, SystemCongestion, nginx_version};
use crate::way::{Step, Way};

/// Measures downloads.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn get(args: &GetArgs, cancel: &AtomicBool) -> Result<Record> {
    let from = Way::from(args.from);
    let server = Kind::from(from);
    let programs = Programs::look(None, args.client.iter().copied().map(Way::from), Some(from))?;
    let commands = programs.commands(get::example, |_| server.clone());
    let asked = Asked {
        scenario: Scenario::Get,
        baseline: Way::Curl,
        sizes: once(&args.sizes),
        // Source and target.
        room: largest(&args.sizes).saturating_mul(2),
        transfers: Transfers { server: Some(from), commands, ..Transfers::default() },
        programs,
    };
    asked.measure(&args.common, cancel, |stage| Get { stage, from: server })
}

/// Measures uploads.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn put(args: &PutArgs, cancel: &AtomicBool) -> Result<Record> {
    let ways = args.way.iter().copied().map(Way::from);
    let programs = Programs::look(args.dufs.as_deref(), ways, None)?;
    let commands = programs.commands(put::example, |way| put::server(way, None));
    let asked = Asked {
        scenario: Scenario::Put,
        baseline: Way::CurlToNginx,
        sizes: once(&args.sizes),
        room: largest(&args.sizes).saturating_mul(2),
        transfers: Transfers { commands, ..Transfers::default() },
        programs,
    };
    asked.measure(&args.common, cancel, Put)
}

/// Measures downloads of a folder.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn tree(args: &TreeArgs, cancel: &AtomicBool) -> Result<Record> {
    let forest = Forest { files: args.files, large: args.large, large_bytes: args.large_size };
    let programs = Programs::look(None, args.client.iter().copied().map(Way::from), None)?;
    let commands = programs.commands(tree::example, |_| tree::SERVER);
    // Every way once to verify it, once to count, and in each round.
    let rounds = u64::from(args.common.run.runs) + u64::from(args.common.run.warmup) + 2;
    let downloads = rounds.saturating_mul(programs.ways.len() as u64);
    let earlier = forest.light_room().saturating_mul(downloads);
    let room = forest.room().saturating_mul(2).saturating_add(earlier);
    let asked = Asked {
        scenario: Scenario::Tree,
        baseline: Way::Wget,
        sizes: vec![forest.bytes()],
        room,
        transfers: Transfers {
            server: Some(Way::Underpass),
            files: Some(forest.files),
            large: Some(forest.large),
            large_bytes: Some(forest.large_bytes),
            commands,
            ..Transfers::default()
        },
        programs,
    };
    asked.measure(&args.common, cancel, |stage| Tree { stage, forest, turn: 0 })
}

/// The programs of a run: those that are there.
#[derive(Debug)]
struct Programs {
    ways: Vec<Way>,
    missing: Vec<&'static str>,
    dufs: Option<PathBuf>,
    nginx: Option<String>,
    versions: Vec<String>,
}

impl Programs {
    /// Looks for what the ways asked for need, and for what the server `from` does.
    fn look(
        dufs: Option<&Path>,
        asked: impl IntoIterator<Item = Way>,
        from: Option<Way>,
    ) -> Result<Self> {
        let (nginx, dufs) = (nginx_version(), dufs.map(Path::to_owned).or_else(|| find(DUFS)));
        let has = |program: &str| match program {
            DUFS => dufs.as_deref().is_some_and(Path::is_file),
            NGINX => nginx.is_some(),
            program => find(program).is_some(),
        };
        let (ways, missing) = available(asked, has);
        let absent = from.into_iter().flat_map(programs).find(|program| !has(program));
        if let Some(program) = absent.or_else(|| missing.first().filter(|_| ways.is_empty())) {
            return Err(BenchError::Usage(format!("{program} is not installed")));
        }
        let needed =
            |name: &str| ways.iter().chain(&from).any(|way| programs(*way).contains(&name));
        let nginx = nginx.filter(|_| needed(NGINX));
        let places = ["curl", "wget", "aria2c"].map(|name| (name, find(name)));
        let places = places.into_iter().chain([(DUFS, dufs.clone())]);
        let used = places.filter(|(name, _)| needed(name));
        let versions = used.filter_map(|(_, place)| version(&place?)).collect();
        Ok(Self { ways, missing, dufs, nginx, versions })
    }

    /// What is run for each way.
    fn commands(
        &self,
        client: impl Fn(Way) -> Words,
        server: impl Fn(Way) -> Kind,
    ) -> Vec<Commands> {
        let commands = |way: &Way| Commands {
            way: *way,
            client: client(*way).to_string(),
            server: server(*way).command_line(),
        };
        self.ways.iter().map(commands).collect()
    }
}

/// What is to be measured.
struct Asked {
    scenario: Scenario,
    baseline: Way,
    sizes: Vec<u64>,
    /// Bytes that all files take at once.
    room: u64,
    transfers: Transfers,
    programs: Programs,
}

impl Asked {
    /// Measures the ways in turn.
    fn measure<'a, C: Course>(
        self,
        args: &CommonArgs,
        cancel: &'a AtomicBool,
        course: impl FnOnce(Stage<'a>) -> C,
    ) -> Result<Record> {
        let Self { scenario, baseline, sizes, room, mut transfers, programs } = self;
        transfers.missing = programs.missing.iter().copied().map(str::to_owned).collect();
        let cores = Cores::available();
        // What a machine does by itself, interrupts above all, it does on its first core.
        let cores = Cores { first: cores.second, second: cores.first, ..cores };
        (transfers.pinned, transfers.memory) = (args.pin, args.memory);
        let core = (args.pin == Pin::Server).then_some(cores.first);
        let site = Site::create(&args.run.dir, false, core)?;
        let folder = &site.folder;
        folder.require_space(room)?;
        let found = survey(cores, folder.path(), Some(folder.path()));
        let congestion = SystemCongestion::choose(&args.congestion)?;
        let environment = Environment {
            congestion: Some(congestion.name.clone()),
            nginx: programs.nginx,
            programs: programs.versions,
            ..found
        };
        let arguments = Arguments {
            sizes: sizes.clone(),
            mechanisms: programs.ways.clone(),
            steps: vec![Step::Default],
            runs: args.run.runs,
            warmup: args.run.warmup,
            cold: false,
            side: Role::Client,
            sink: None,
            responses: None,
            serve: None,
            transfers: Some(transfers),
            over: Over::Loopback,
            receivers: Receivers::Ours,
        };
        let baseline = Variant::new(baseline, Step::Default);
        let record = begin(scenario, arguments, environment, baseline);
        let noise = Noise::new(largest(&sizes))?;
        let (counter, missing) = Counter::unless(args.no_count, &site.folder);
        let stage = Stage {
            site,
            noise,
            dufs: programs.dufs,
            memory: args.memory,
            counter,
            cancel,
            sha256: String::new(),
        };
        let schedule = Schedule {
            sizes,
            variants: programs.ways.iter().map(|way| Variant::new(*way, Step::Default)).collect(),
            warmup: args.run.warmup,
            runs: args.run.runs,
        };
        let Results { cells, samples, counted } = schedule.run(&mut course(stage), cancel)?;
        Ok(Record { cells, samples, counted, missing, ..record })
    }
}
