//! The record of a run: everything that was measured, and where, as one versioned JSON object.
//!
//! Tables are drawn from a record alone, so that the same record always gives the same table. It
//! names neither the machine nor any folder of it.

mod contender;
mod counted;
mod description;
mod metric;
mod receipt;
mod served;
mod setup;
mod statistics;
mod unit;
mod variant;
mod warnings;

use serde::{Deserialize, Serialize};
use underpass_engine::{Mechanism, Report, Usage};

pub(crate) use contender::{Contender, PEERS};
pub(crate) use counted::{Counted, MissingContender, NamedCall};
pub(crate) use description::{Cpu, Description};
pub(crate) use metric::{
    CALLS, CPU, CallDirection, FAULTS, LOAD_BUSY, LONGEST, MACHINE, MACHINE_PER_GIB, Metric, P50,
    P99, PEER_CPU, Preference, RATE, Rank, SERVER_BUSY, SPEED, SWITCHES, SampleSide, THROUGHPUT,
    TIME, USER_SPACE, counted, metric, served_amount, served_in, sum,
};
pub(crate) use receipt::{MechanismReceipt, Receipt};
pub(crate) use served::{
    BadClients, GoodClient, Hostile, Latency, Load, OriginFound, RangesFound, Served, ServerMemory,
    Setting,
};
pub(crate) use setup::{
    CommandLine, Copies, Dropped, EarlierCopies, MemoryState, OriginalKind, PinnedSides, Transfers,
};
pub(crate) use statistics::{Summary, TimeOf, summarize};
pub(crate) use unit::{Unit, three_digits};
pub(crate) use variant::{Choice, Step, Variant, at_steps, chosen, once, short_size};
pub(crate) use warnings::warnings;

/// The version of the record's form; raised when a field changes its name or its meaning.
pub(crate) const SCHEMA: u64 = 1;

/// A whole run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Record {
    /// The version of this form.
    pub(crate) schema: u64,
    /// The name of the scenario.
    pub(crate) scenario: String,
    /// The scenario of that name, looked up when the record is loaded.
    #[serde(skip)]
    pub(crate) about: &'static Description,
    pub(crate) underpass: String,
    /// When it began, RFC 3339 in UTC.
    pub(crate) started: String,
    pub(crate) arguments: Arguments,
    pub(crate) environment: Environment,
    /// What the others are compared with.
    pub(crate) baseline: Variant,
    /// What was copied by programs that copy; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copies: Option<Copies>,
    /// Every size with every variant, in the order in which they took turns.
    pub(crate) cells: Vec<Cell>,
    /// Every sample that counts, in the order in which they were taken.
    pub(crate) samples: Vec<Sample>,
    /// System calls, counted in a pass of its own; absent if nothing was counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) counted: Vec<Counted>,
    /// Programs that should have taken part and did not; absent if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<MissingContender>,
}

/// The requested options.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Arguments {
    pub(crate) sizes: Vec<u64>,
    /// Contenders besides the baseline.
    pub(crate) mechanisms: Vec<Contender>,
    /// Steps of those contenders that have any.
    pub(crate) steps: Vec<Step>,
    /// Rounds that count.
    pub(crate) runs: u32,
    /// Rounds before them that do not.
    pub(crate) warmup: u32,
    /// Whether the source was thrown out of the page cache before each sample.
    pub(crate) cold: bool,
    /// Whose mechanism was varied.
    pub(crate) side: Role,
    /// Where a receiver put the bytes.
    pub(crate) sink: Option<SinkKind>,
    /// Responses of one sample.
    pub(crate) responses: Option<u32>,
    /// The options of server scenarios; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) serve: Option<Setting>,
    /// The options of client scenarios; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transfers: Option<Transfers>,
    /// What lay between sender and receiver.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) over: NetworkKind,
    /// Whose receivers took what peers sent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) receivers: Receivers,
}

/// What lies between a sender and its receiver.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NetworkKind {
    /// Loopback
    #[default]
    Loopback,
    /// A pair of virtual network cards with an MTU of 1500 between two network namespaces, which
    /// takes root
    Veth,
}

/// Whose receivers take what peers send.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Receivers {
    /// `underpass recv` for all alike
    #[default]
    Ours,
    /// Each peer's own, as in the articles
    Own,
}

/// Returns whether a field may be left out.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The part of the work that a process did.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Asked a server.
    Client,
    /// Copied from file to file.
    Copier,
    /// Read from the connection.
    Receiver,
    /// Wrote to the connection.
    #[default]
    Sender,
    /// Answered its clients.
    Server,
}

/// Where a receiver puts the bytes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SinkKind {
    /// Into /dev/null
    Drop,
    /// Into a new file, made afresh for each sample
    File,
}

/// Where a run took place.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Environment {
    pub(crate) kernel: String,
    pub(crate) machine: String,
    pub(crate) cpu: String,
    /// Processor cores that could be used.
    pub(crate) cores: usize,
    /// The core of the sender or server, or of the copier.
    pub(crate) first_core: usize,
    /// The core of the receiver or client. In `get`, `put` and `tree` it is the other
    /// one, to which no process is kept, nor any server to the first unless `pinned` says so.
    pub(crate) second_core: usize,
    pub(crate) memory_bytes: u64,
    /// The type of the file system of the source.
    pub(crate) source_file_system: String,
    /// The type of the file system of the target; absent if there was none.
    pub(crate) target_file_system: Option<String>,
    /// The congestion control of the connections; absent without any.
    pub(crate) congestion: Option<String>,
    /// The system's default congestion control.
    pub(crate) congestion_default: String,
    /// Load of the last 1, 5 and 15 minutes when it began.
    pub(crate) load_average: [f64; 3],
    /// Whether the program was built with optimization.
    pub(crate) optimized: bool,
    /// The version of coreutils' cp; absent if there is none or it was not measured.
    pub(crate) cp: Option<String>,
    /// The version of nginx; absent if there is none or it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nginx: Option<String>,
    /// The versions of the other programs; absent if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) programs: Vec<String>,
}

/// One size with one variant.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Cell {
    /// Bytes of the file.
    pub(crate) size: u64,
    /// How they were moved.
    #[serde(flatten)]
    pub(crate) variant: Variant,
    /// SHA-256 of what arrived in the verifying pass, which was that of the source; absent if
    /// the kernel declined.
    pub(crate) sha256: Option<String>,
    /// How the kernel declined the mechanism, which is not measured then.
    pub(crate) declined: Option<String>,
    /// Connections at once; absent where their number was not varied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<u32>,
    /// The bad clients; absent where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<BadClients>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// The cell, as an index.
    pub(crate) cell: usize,
    /// The round, from 1; all samples of a round were taken one after the other.
    pub(crate) round: u32,
    /// Seconds that the work took: of `net` the longer of both sides' `elapsed_s`, of
    /// `article_table`, `article_chunks` and `limit` the receiver's, whose clock is the same for all,
    /// of `copy`, `article_copy`, `get`, `put` and `tree` the life of the process, of `chain` from the
    /// first request to the end of the last response, of servers as long as they were being asked.
    pub(crate) wall_s: f64,
    /// The side whose mechanism was varied.
    pub(crate) measured: Side,
    /// The other side; absent if there was none.
    pub(crate) peer: Option<Side>,
    /// Seconds during which the machine was watched, from before the first process to after
    /// the last.
    pub(crate) watched_s: f64,
    /// Processor seconds that others spent meanwhile. The kernel counts them in steps of 10 ms, so
    /// that only the sum of many samples means something; one alone may even be below 0.
    pub(crate) other_cpu_s: f64,
    /// What clients of a server saw; absent if it was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) served: Option<Served>,
}

/// What one side of a sample did.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Side {
    /// Its part of the work.
    pub(crate) role: Role,
    /// Seconds by its own clock, from the first byte to the last; of a sender until the peer's
    /// kernel had acknowledged all.
    pub(crate) elapsed_s: f64,
    /// What the thread that moved the bytes spent on them, from its receipt.
    pub(crate) thread: Option<ThreadCost>,
    /// What the whole process spent, as the kernel counted; absent if it was the bench itself.
    pub(crate) process: Option<ProcessCost>,
}

/// What a thread spent on the bytes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct ThreadCost {
    /// Processor seconds in user space.
    pub(crate) user_s: f64,
    /// Processor seconds in the kernel.
    pub(crate) system_s: f64,
    /// Context switches because it waited.
    pub(crate) voluntary_switches: u64,
    /// Context switches because its time was up.
    pub(crate) involuntary_switches: u64,
    /// Page faults served from memory.
    pub(crate) minor_faults: u64,
    /// Page faults served from a disk.
    pub(crate) major_faults: u64,
    /// System calls that moved bytes or tried to.
    pub(crate) calls: u64,
    /// Those calls by mechanism, with the bytes moved.
    pub(crate) mechanisms: Vec<MechanismReceipt>,
    /// Bytes copied between user and kernel space.
    pub(crate) user_space_bytes: u64,
}

/// What a process spent from its start to its end; of a server all of its processes together,
/// while they were being asked.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct ProcessCost {
    /// Seconds from before it was started until it had ended.
    pub(crate) wall_s: f64,
    /// Processor seconds, user and system together.
    pub(crate) cpu_s: f64,
    /// Context switches because it waited.
    pub(crate) voluntary_switches: u64,
    /// Context switches because its time was up.
    pub(crate) involuntary_switches: u64,
    /// Bytes that it had fetched from a disk: about none if the page cache was warm.
    pub(crate) storage_read_bytes: u64,
    /// Bytes that it will have written to a disk, unless they are deleted before.
    pub(crate) storage_written_bytes: u64,
}

impl From<&Receipt> for ThreadCost {
    fn from(receipt: &Receipt) -> Self {
        Self {
            user_s: receipt.cpu_s.user,
            system_s: receipt.cpu_s.system,
            voluntary_switches: receipt.context_switches.voluntary,
            involuntary_switches: receipt.context_switches.involuntary,
            minor_faults: receipt.page_faults.minor,
            major_faults: receipt.page_faults.major,
            calls: receipt.calls,
            mechanisms: receipt.mechanisms.clone(),
            user_space_bytes: receipt.user_space_bytes,
        }
    }
}

impl Role {
    /// Returns its name for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Copier => "copier",
            Self::Receiver => "receiver",
            Self::Sender => "sender",
            Self::Server => "server",
        }
    }
}

impl Cell {
    /// Creates a cell that has not been verified.
    pub(crate) const fn new(size: u64, variant: Variant) -> Self {
        Self { size, variant, sha256: None, declined: None, connections: None, load: None }
    }

    /// Returns what a cell is about besides its variant: size, connections, load.
    pub(crate) fn point(&self) -> (u64, Option<u32>, Option<BadClients>) {
        (self.size, self.connections, self.load)
    }
}

impl Side {
    /// Creates a side of which only the time is known.
    pub(crate) const fn new(role: Role, elapsed_s: f64) -> Self {
        Self { role, elapsed_s, thread: None, process: None }
    }

    /// Creates the side of a process, with its cost.
    pub(crate) fn process(role: Role, elapsed_s: f64, process: ProcessCost) -> Self {
        Self { process: Some(process), ..Self::new(role, elapsed_s) }
    }
}

impl ThreadCost {
    /// Creates the cost of a thread of the bench that moved the bytes in `report`.
    pub(crate) fn of(report: &Report, usage: Usage) -> Self {
        let moved = |(mechanism, moved): (Mechanism, underpass_engine::Tally)| MechanismReceipt {
            name: mechanism.to_string(),
            bytes: moved.bytes,
            calls: moved.calls,
        };
        Self {
            user_s: usage.user.as_secs_f64(),
            system_s: usage.system.as_secs_f64(),
            voluntary_switches: usage.voluntary_switches,
            involuntary_switches: usage.involuntary_switches,
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
            calls: report.calls(),
            mechanisms: report.mechanisms().map(moved).collect(),
            user_space_bytes: report.user_space_bytes(),
        }
    }

    /// Returns processor seconds, user and system together.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}
