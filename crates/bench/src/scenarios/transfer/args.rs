//! The options of `bench get`, `bench put` and `bench tree`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::payload::{Payload, Transfer};
use super::{GET, PUT, TREE};
use crate::error::Result;
use crate::load::ServedSite;
use crate::options::{Measure, Named, SystemArgs, among, bytes, number};
use crate::record::{Contender, MemoryState, PinnedSides, Record, Role, Transfers, Variant};
use crate::run::{
    Cores, FileTree, Noise, RunPlan, Start, SystemCongestion, find, largest, nginx_version, survey,
    version,
};
use crate::scenarios::installed;

/// The arguments of `bench get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Measure files of these sizes
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "2G")]
    sizes: Vec<u64>,

    /// Download from this server
    #[arg(long, value_name = "SERVER", value_parser = among(SERVERS))]
    #[arg(default_value = "underpass")]
    from: Contender,

    /// Measure these clients; those that are not installed are left out
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = among(GET_CLIENTS))]
    #[arg(default_value = "curl,wget,aria2c,bare-client,underpass")]
    client: Vec<Contender>,

    #[command(flatten)]
    common: ClientArgs,
}

/// The arguments of `bench put`.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// Measure files of these sizes
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "2G")]
    sizes: Vec<u64>,

    /// Measure these clients with their servers; those that are not installed are left out
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = among(UPLOADS))]
    #[arg(default_value = EVERY_UPLOAD)]
    way: Vec<Contender>,

    /// Run this program as dufs, if it is not in PATH
    #[arg(long, value_name = "FILE")]
    dufs: Option<PathBuf>,

    #[command(flatten)]
    common: ClientArgs,
}

const SERVERS: &[Named] = &[
    ("underpass", Contender::Underpass, "`underpass serve`"),
    ("nginx", Contender::Nginx, "nginx, as `bench serve` runs it"),
];

const GET_CLIENTS: &[Named] = &[
    ("curl", Contender::Curl, "curl -o"),
    ("wget", Contender::Wget, "wget -O"),
    ("aria2c", Contender::Aria2, "aria2c -x4"),
    ("bare-client", Contender::BareClient, "The least that a client can do: splice, in C"),
    ("underpass", Contender::Underpass, "`underpass get`"),
];

const EVERY_UPLOAD: &str = "curl-to-nginx,curl-to-dufs,curl-to-underpass,bare-client,underpass,\
    underpass-synced";

const UPLOADS: &[Named] = &[
    ("curl-to-nginx", Contender::CurlToNginx, "curl -T to nginx"),
    ("curl-to-dufs", Contender::CurlToDufs, "curl -T to dufs"),
    ("curl-to-underpass", Contender::CurlToUnderpass, "curl -T to `serve --sync off`"),
    (
        "bare-client",
        Contender::BareClient,
        "The least that a client can do, sendfile in C, to `serve --sync off`",
    ),
    ("underpass", Contender::Underpass, "`underpass put` to `serve --sync off`"),
    (
        "underpass-synced",
        Contender::UnderpassSynced,
        "`underpass put` to `serve`, which answers once the file is on the disk",
    ),
];

/// The arguments of `bench tree`.
#[derive(Debug, Args)]
pub struct TreeArgs {
    /// Create N small files of 1 to 16 KiB, a hundred in each folder
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = number(1))]
    files: u32,

    /// Create N large files
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number(0))]
    large: u32,

    /// Size of each large file
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = bytes)]
    large_size: u64,

    /// Measure these clients; those that are not installed are left out
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = among(TREE_CLIENTS))]
    #[arg(default_value = "wget,underpass")]
    client: Vec<Contender>,

    #[command(flatten)]
    common: ClientArgs,
}

const TREE_CLIENTS: &[Named] = &[
    ("wget", Contender::Wget, "wget -r"),
    ("underpass", Contender::Underpass, "`underpass get -r`"),
];

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

impl Measure for GetArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let programs = Programs::look(None, &self.client, Some(self.from))?;
        // Source and target are there at once.
        let room = largest(&self.sizes).saturating_mul(2);
        self.common.measure(start, Payload::Download(self.from), &self.sizes, room, programs)
    }
}

impl Measure for PutArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let programs = Programs::look(self.dufs.as_deref(), &self.way, None)?;
        let payload = Payload::Upload(programs.dufs.clone());
        let room = largest(&self.sizes).saturating_mul(2);
        self.common.measure(start, payload, &self.sizes, room, programs)
    }
}

impl Measure for TreeArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let tree = FileTree { files: self.files, large: self.large, large_bytes: self.large_size };
        let programs = Programs::look(None, &self.client, None)?;
        // Every contender once to verify it, once to count, and in each round.
        let rounds = u64::from(start.run.runs) + u64::from(start.run.warmup) + 2;
        let downloads = rounds.saturating_mul(programs.contenders.len() as u64);
        let earlier = tree.room_without_large().saturating_mul(downloads);
        let room = tree.room().saturating_mul(2).saturating_add(earlier);
        self.common.measure(start, Payload::Tree(tree), &[tree.bytes()], room, programs)
    }
}

impl ClientArgs {
    /// Measures the programs, which need `room` bytes for all files.
    fn measure(
        &self,
        start: Start<'_>,
        payload: Payload,
        sizes: &[u64],
        room: u64,
        programs: Programs,
    ) -> Result<Record> {
        let (about, baseline) = match payload {
            Payload::Download(_) => (&GET, Contender::Curl),
            Payload::Upload(_) => (&PUT, Contender::CurlToNginx),
            Payload::Tree(_) => (&TREE, Contender::Wget),
        };
        let cores = Cores::of_server();
        let core = (self.pin == PinnedSides::Server).then_some(cores.first);
        let Start { context, run } = start;
        let site = ServedSite::create(context, &run.dir, false, core)?;
        site.folder.require_space(room)?;
        let found = survey(cores, site.folder.path(), Some(site.folder.path()));
        let mut plan = RunPlan::new(start, sizes, found);
        let congestion = SystemCongestion::choose(&self.system.congestion)?;
        plan.environment.congestion = Some(congestion.name.clone());
        plan.arguments.side = Role::Client;
        plan.arguments.transfers = Some(self.transfers(&payload, &programs));
        plan.count_calls_unless(self.system.no_count, &site.folder);
        plan.environment.nginx = programs.nginx;
        plan.environment.programs = programs.versions;
        plan.for_contenders(programs.contenders);
        let mut transfer = Transfer {
            payload,
            site,
            noise: Noise::new(largest(sizes))?,
            memory: self.memory,
            context,
            _congestion: congestion,
            turn: 0,
            sha256: String::new(),
        };
        plan.measure(about, &mut transfer, Variant::plain(baseline))
    }

    /// Returns the fields of the record that only runs with clients have.
    fn transfers(&self, payload: &Payload, programs: &Programs) -> Transfers {
        let (server, tree) = match payload {
            Payload::Download(from) => (Some(*from), None),
            Payload::Upload(_) => (None, None),
            Payload::Tree(tree) => (Some(Contender::Underpass), Some(tree)),
        };
        Transfers {
            server,
            files: tree.map(|tree| tree.files),
            large: tree.map(|tree| tree.large),
            large_bytes: tree.map(|tree| tree.large_bytes),
            pinned: self.pin,
            memory: self.memory,
            commands: payload.commands(&programs.contenders),
            missing: programs.missing.iter().copied().map(str::to_owned).collect(),
        }
    }
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
    /// Finds the programs that the contenders and the server `from` need.
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
}
