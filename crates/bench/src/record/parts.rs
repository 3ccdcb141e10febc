//! The parts of a record that only some runs have: those of servers, of clients, of copies; system
//! calls, which are counted in a separate pass because counting takes time; missing contenders.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{Contender, Role};

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Setting {
    pub(crate) connections: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) all_connections: bool,
    pub(crate) seconds: f64,
    pub(crate) log: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) tls: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) streams: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idle: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sparse_from: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slow: Option<u32>,
}

/// The view of a server's clients in one sample.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Served {
    /// Requests, one after the other on each connection (`serve`), or connections with one request
    /// each (`serve_handshakes`).
    Requests(Load),
    /// Requests, and the memory that the server used for them (`scale`).
    Scale { load: Load, start: ServerMemory, busy: ServerMemory },
    /// Requests for a hot file, alone and while large ones are streamed (`serve_fairness`).
    Fairness { alone: Load, beside: Load, streamed_bytes: u64 },
    /// A cache in front of an origin (`origin`).
    Origin(OriginFound),
    /// A good client, while bad ones are connected (`hostile`).
    Hostile(Hostile),
    /// Very many connections at once (`serve_idle`).
    Idle(IdleFound),
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Load {
    pub(crate) connections: u32,
    pub(crate) elapsed_s: f64,
    pub(crate) responses: u64,
    pub(crate) bytes: u64,
    pub(crate) latency: Option<Latency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50_s: f64,
    pub(crate) p99_s: f64,
    pub(crate) max_s: f64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct ServerMemory {
    pub(crate) resident_bytes: u64,
    pub(crate) proportional_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct OriginFound {
    pub(crate) direct_s: f64,
    pub(crate) crowd_s: f64,
    pub(crate) crowd_origin_bytes: u64,
    pub(crate) crowd_cpu_s: f64,
    pub(crate) warm_s: f64,
    pub(crate) warm_cpu_s: f64,
    pub(crate) plain_s: f64,
    pub(crate) ranges: Option<RangesFound>,
    /// Requests for the hot set, and how many of them reached the origin.
    pub(crate) hot: (u64, u64),
    /// The most bytes on the disk, and the budget.
    pub(crate) kept: (u64, u64),
    pub(crate) memory: ServerMemory,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct RangesFound {
    pub(crate) asked_bytes: u64,
    pub(crate) origin_bytes: u64,
    pub(crate) first_s: f64,
    pub(crate) direct_first_s: f64,
}

/// The memory of a server at three stages, and its latency at the end.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct IdleFound {
    /// After one request.
    pub(crate) start: ServerMemory,
    /// With idle connections.
    pub(crate) idle: ServerMemory,
    /// With slow downloads as well.
    pub(crate) slow: ServerMemory,
    pub(crate) answers: Latency,
}

impl Served {
    /// Returns the bytes of files that arrived; `None` if something else was measured.
    pub(crate) const fn bytes(&self) -> Option<u64> {
        match self {
            Self::Requests(load) | Self::Scale { load, .. } => Some(load.bytes),
            Self::Fairness { streamed_bytes, .. } => Some(*streamed_bytes),
            Self::Hostile(_) | Self::Idle(_) | Self::Origin(_) => None,
        }
    }
}

/// A good client, while bad ones are connected.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Hostile {
    pub(crate) alone: GoodClient,
    pub(crate) beside: GoodClient,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) floor: Option<GoodClient>,
    pub(crate) open: u32,
    pub(crate) begun: u64,
    pub(crate) start_bytes: u64,
    pub(crate) peak_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct GoodClient {
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) latency: Option<Latency>,
}

/// The kinds of bad clients.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BadClients {
    /// Clients that connect and send nothing
    Idle,
    /// Clients that send a long head, its end a byte at a time
    SlowHeads,
    /// Clients that request a large file and read a little now and then
    SlowReaders,
    /// Clients that request a large file and reset the connection
    Resets,
    /// Clients that request as many ranges as fit into a head
    Ranges,
    /// Clients that begin a handshake and do not end it
    PartialHellos,
    /// Clients that do a TLS handshake, send one request and leave
    Handshakes,
    /// Clients that try passwords
    Passwords,
    /// Clients that send requests and never read
    Pipelines,
    /// Clients that request the size of a folder as a tar archive
    Archives,
    /// Clients that request the page of a large folder and do not read it
    Listings,
    /// Clients that upload a byte at a time
    SlowUploads,
}

impl BadClients {
    /// Returns their name for people.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().replace('-', " "))
    }
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Transfers {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<Contender>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) large: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) large_bytes: Option<u64>,
    pub(crate) pinned: PinnedSides,
    pub(crate) memory: MemoryState,
    pub(crate) commands: Vec<CommandLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<String>,
}

/// Which processes stay on one core.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PinnedSides {
    /// No process
    #[default]
    None,
    /// The server on the second core
    Server,
}

/// The state of the memory for a sample's target.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MemoryState {
    /// The same for all: a file as large as the target is written and removed first
    #[default]
    Even,
    /// As the previous client left it
    Found,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Copies {
    pub(crate) original: OriginalKind,
    pub(crate) files: u64,
    pub(crate) allocated_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chilled: Option<Dropped>,
    pub(crate) earlier: EarlierCopies,
    pub(crate) commands: Vec<CommandLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OriginalKind {
    /// One file of random bytes.
    #[default]
    File,
    /// An existing folder.
    Folder,
    /// A folder of files of 1 to 16 KiB.
    SmallFiles,
    /// A file with holes, and one with the same data and without holes.
    Sparse,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dropped {
    /// All caches of the system: bytes, names and metadata.
    AllCaches,
    /// The bytes of its files.
    PageCache,
}

/// Whether copies of earlier rounds are kept or removed.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EarlierCopies {
    /// They stay until the end: for minutes after the removal of thousands of files, ext4 takes
    /// several times as long to create new ones, whichever program does that.
    #[default]
    Stay,
    /// They are removed after each sample, for there is no room for all of them.
    Removed,
}

/// The command line of a contender, with words in capitals for values that differ each time.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct CommandLine {
    #[serde(rename = "way")]
    pub(crate) contender: Contender,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
}

impl CommandLine {
    /// Creates an empty line for a contender that was not run.
    pub(crate) const fn of(contender: Contender) -> Self {
        Self { contender, command: None, client: None, server: None }
    }
}

/// The system calls of one process and all of its threads in the counted pass of a cell.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Counted {
    pub(crate) cell: usize,
    pub(crate) role: Role,
    pub(crate) calls: Vec<NamedCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) served_bytes: Option<u64>,
}

impl Counted {
    /// Creates the calls of a process that moved everything once; the cell is set later.
    pub(crate) fn new(role: Role, calls: Vec<NamedCall>) -> Self {
        Self { cell: 0, role, calls, served_bytes: None }
    }

    /// Creates the calls of a server that sent `bytes` of bodies meanwhile.
    pub(crate) fn while_serving(calls: Vec<NamedCall>, bytes: u64) -> Self {
        Self { served_bytes: Some(bytes), ..Self::new(Role::Server, calls) }
    }

    /// Returns these calls for this cell.
    pub(crate) fn of(self, cell: usize) -> Self {
        Self { cell, ..self }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct NamedCall {
    pub(crate) name: String,
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct MissingContender {
    pub(crate) name: String,
    pub(crate) why: String,
}
