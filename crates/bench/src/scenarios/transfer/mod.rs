//! `bench get`, `bench put` and `bench tree`: clients that move whole files by HTTP, ours compared
//! with those that people have, from the start of their process to its end. `clients` knows their
//! command lines, `file` takes samples of a file in either direction, `tree` of a folder.

mod clients;
mod file;
mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use self::clients::isolated;
use super::installed;
use crate::error::Result;
use crate::load::{ServedSite, Server, ServerKind, ServerUsage};
use crate::options::SystemArgs;
use crate::record::{
    CALLS, CPU, CommandLine, Contender, Counted, Cpu, Description, MemoryState, Metric, PEER_CPU,
    PinnedSides, Record, Role, SPEED, SWITCHES, Side, TIME, Transfers, Variant, short_size,
};
use crate::run::{
    CallTracer, CommandWords, Context, Cores, Finished, Measured, Noise, RunPlan, Running, Start,
    SystemCongestion, find, largest, nginx_version, survey, version,
};

pub use file::{GetArgs, PutArgs};
pub use tree::TreeArgs;

#[derive(Debug, Args)]
struct ClientArgs {
    /// Keep these processes on one core; clients run on any, as some have several threads
    #[arg(long, value_enum, value_name = "WHICH", default_value = "none")]
    pin: PinnedSides,

    /// Choose how each sample finds the memory for its target; many small pieces that were freed
    /// just before take longer to fill than few large ones
    #[arg(long, value_enum, value_name = "HOW", default_value = "even")]
    memory: MemoryState,

    #[command(flatten)]
    system: SystemArgs,
}

/// The programs of a run: those that are installed.
#[derive(Debug)]
struct Programs {
    contenders: Vec<Contender>,
    missing: Vec<&'static str>,
    dufs: Option<PathBuf>,
    nginx: Option<String>,
    versions: Vec<String>,
}

impl Programs {
    /// Looks for what the contenders need, and for what the server `from` does.
    fn look(dufs: Option<&Path>, requested: &[Contender], from: Option<Contender>) -> Result<Self> {
        let dufs = dufs.map(Path::to_owned).or_else(|| find("dufs"));
        let has = |program: &str| match program {
            "dufs" => dufs.as_deref().is_some_and(Path::is_file),
            program => find(program).is_some(),
        };
        let (contenders, missing) = installed(requested, has)?;
        if let Some(from) = from {
            installed(&[from], has)?;
        }
        let needed = |name: &str| {
            let mut all = contenders.iter().chain(&from);
            all.any(|contender| contender.programs().contains(&name))
        };
        let nginx = nginx_version().filter(|_| needed("nginx"));
        let places = ["curl", "wget", "aria2c"].map(|name| (name, find(name)));
        let places = places.into_iter().chain([("dufs", dufs.clone())]);
        let used = places.filter(|(name, _)| needed(name));
        let versions = used.filter_map(|(_, place)| version(&place?)).collect();
        Ok(Self { contenders, missing, dufs, nginx, versions })
    }

    /// Returns the command lines of each contender for the record.
    fn commands(
        &self,
        client: impl Fn(Contender) -> CommandWords,
        server: impl Fn(Contender) -> ServerKind,
    ) -> Vec<CommandLine> {
        let command = |contender: &Contender| CommandLine {
            client: Some(client(*contender).to_string()),
            server: Some(server(*contender).command_line()),
            ..CommandLine::of(*contender)
        };
        self.contenders.iter().map(command).collect()
    }
}

#[derive(Debug)]
struct ClientFixture<'a> {
    site: ServedSite<'a>,
    noise: Noise,
    memory: MemoryState,
    tracer: Option<CallTracer>,
    context: &'a Context<'a>,
    /// Put back at the end.
    _congestion: SystemCongestion,
    sha256: String,
}

impl ClientArgs {
    /// Finds a place for the files, `room` bytes altogether; nothing is measured yet.
    fn open<'a>(
        &self,
        start: Start<'a>,
        sizes: &[u64],
        room: u64,
        mut transfers: Transfers,
        programs: Programs,
    ) -> Result<(RunPlan<'a>, ClientFixture<'a>)> {
        transfers.missing = programs.missing.iter().copied().map(str::to_owned).collect();
        let cores = Cores::of_server();
        (transfers.pinned, transfers.memory) = (self.pin, self.memory);
        let core = (self.pin == PinnedSides::Server).then_some(cores.first);
        let Start { context, run } = start;
        let site = ServedSite::create(context, &run.dir, false, core)?;
        site.folder.require_space(room)?;
        let found = survey(cores, site.folder.path(), Some(site.folder.path()));
        let mut plan = RunPlan::new(start, sizes, found);
        let congestion = SystemCongestion::choose(&self.system.congestion)?;
        plan.environment.congestion = Some(congestion.name.clone());
        plan.environment.nginx = programs.nginx;
        plan.environment.programs = programs.versions;
        plan.arguments.mechanisms.clone_from(&programs.contenders);
        (plan.arguments.side, plan.arguments.transfers) = (Role::Client, Some(transfers));
        let tracer = CallTracer::unless(self.system.no_count, &site.folder, &mut plan);
        let variants: Vec<_> = programs.contenders.into_iter().map(Variant::plain).collect();
        plan.for_sizes(&variants);
        let fixture = ClientFixture {
            site,
            noise: Noise::new(largest(sizes))?,
            memory: self.memory,
            tracer,
            context,
            _congestion: congestion,
            sha256: String::new(),
        };
        Ok((plan, fixture))
    }
}

impl ClientFixture<'_> {
    /// Runs a client, which gets the address as `http://HOST:PORT/`, against a new server, and
    /// fails unless it succeeds. It may run on every core.
    fn run(
        &self,
        contender: Contender,
        kind: &ServerKind,
        words: impl FnOnce(&str) -> CommandWords,
    ) -> Result<Measured> {
        let server = self.site.start(kind)?;
        let command = self.command(contender, &server, words)?;
        let before = server.usage();
        let finished = self.succeeded(contender, command)?;
        let after = server.usage();
        let wall_s = finished.cost.wall_s;
        let served = after.since(&before);
        let all_cpu_s = after.since(&ServerUsage::zero()).cpu_s;
        let client = Side::process(Role::Client, wall_s, finished.cost);
        let besides_cpu_s = all_cpu_s - served.cpu_s;
        let peer = Some(Side::process(Role::Server, wall_s, served));
        Ok(Measured { besides_cpu_s, ..Measured::new(wall_s, client, peer) })
    }

    /// Runs a client once more, with the system calls of both; none without a tracer.
    fn count(
        &self,
        contender: Contender,
        kind: &ServerKind,
        words: impl FnOnce(&str) -> CommandWords,
    ) -> Result<Vec<Counted>> {
        let Some(tracer) = &self.tracer else { return Ok(Vec::new()) };
        let server = self.site.start(kind)?;
        let command = self.command(contender, &server, words)?;
        let watch = tracer.attach(|| server.processes())?;
        self.succeeded(contender, tracer.watch(&command, Role::Client))?;
        Ok(vec![tracer.tally(Role::Client)?, Counted::new(Role::Server, watch.end()?)])
    }

    fn command(
        &self,
        contender: Contender,
        server: &Server,
        words: impl FnOnce(&str) -> CommandWords,
    ) -> Result<Command> {
        let words = words(&format!("http://{}/", server.address));
        let command = match contender {
            Contender::BareClient => words.given_to(Command::new(self.site.bare_client()?)),
            _ => words.command(self.context),
        };
        Ok(isolated(command, self.site.folder.path()))
    }

    fn succeeded(&self, contender: Contender, command: Command) -> Result<Finished> {
        let finished = Running::start(command, None)?.finish(None, self.context.cancel)?;
        finished.succeeded(contender)
    }

    /// Gives each sample of `size` bytes the same state of memory: pages that one contender has
    /// freed in many small pieces are slower to fill than a few large ones, and in a fixed order
    /// each contender would always follow the same other one.
    fn even_memory(&self, size: u64) -> Result<()> {
        let folder = &self.site.folder;
        let file = folder.file("level");
        match self.memory {
            MemoryState::Found => Ok(()),
            MemoryState::Even => {
                self.noise.scatter(&file, size)?;
                folder.clear(&file)
            }
        }
    }
}

fn caption(record: &Record) -> String {
    let transfers = record.arguments.transfers.clone().unwrap_or_default();
    let cores = match transfers.pinned {
        PinnedSides::Server => {
            format!("The server is on core {}, the client on any", record.environment.first_core)
        }
        PinnedSides::None => "Server and client are on any core".to_owned(),
    };
    let memory = match transfers.memory {
        MemoryState::Found => "memory is as the previous client left it",
        MemoryState::Even => "memory is in the same state for all",
    };
    let what = match transfers.files {
        Some(files) => {
            let large = short_size(transfers.large_bytes.unwrap_or(0));
            let count = transfers.large.unwrap_or(0);
            format!("{files} files of 1 to 16 KiB and {count} of {large}. ")
        }
        None => String::new(),
    };
    format!(
        "{what}Time from the start of the client's process to its end, and processor time of the \
         whole process. {cores}; {memory}"
    )
}

fn ends(record: &Record) -> [&str; 3] {
    let transfers = record.arguments.transfers.as_ref();
    let server = match transfers.and_then(|transfers| transfers.server) {
        Some(Contender::Nginx) => "nginx",
        _ => "underpass serve",
    };
    let target = record.environment.target_file_system.as_deref().unwrap_or_default();
    [&record.environment.source_file_system, server, target]
}

const METRICS: &[&Metric] = &[&TIME, &SPEED, &CPU, &PEER_CPU, &CALLS, &SWITCHES];

pub(super) const GET: Description = Description {
    name: "get",
    command: "get",
    cpu: Cpu::Process,
    cores: Some("server and client"),
    subject: |record| {
        let [source, server, target] = ends(record);
        format!("file on {source} from {server} by HTTP on loopback to file on {target}")
    },
    caption,
    metrics: METRICS,
    ..Description::NONE
};

pub(super) const PUT: Description = Description {
    name: "put",
    command: "put",
    subject: |record| {
        let [source, _, target] = ends(record);
        format!("file on {source} by HTTP on loopback to a server's file on {target}")
    },
    ..GET
};

pub(super) const TREE: Description = Description {
    name: "tree",
    command: "tree",
    whole_folders: true,
    subject: |record| {
        let [source, server, target] = ends(record);
        format!("folder on {source} from {server} by HTTP on loopback to folder on {target}")
    },
    ..GET
};
