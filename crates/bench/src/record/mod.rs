//! The record of a run: everything that was measured, and where, as one versioned JSON object.
//!
//! Tables are drawn from a record alone, so that the same record always gives the same table. It
//! names neither the machine nor any folder of it. docs/records.md describes its fields, which a
//! test verifies.

mod contender;
mod description;
mod metric;
mod parts;
mod receipt;
mod statistics;
mod unit;
mod variant;
mod warnings;

use serde::{Deserialize, Serialize};
use underpass_engine::{Mechanism, Report, Tally, Usage};

pub(crate) use contender::Contender;
pub(crate) use description::Description;
pub(crate) use metric::{
    CALLS, CPU, FAULTS, LOAD_BUSY, LONGEST, MACHINE, MACHINE_PER_GIB, Metric, P50, P99, PEER_CPU,
    Preference, RATE, Rank, SERVER_BUSY, SPEED, SWITCHES, THROUGHPUT, TIME, USER_SPACE, metric,
    served_amount, served_in,
};
pub(crate) use parts::{
    BadClients, CommandLine, Copies, Counted, Dropped, EarlierCopies, GoodClient, Hostile,
    IdleFound, Latency, Load, MemoryState, MissingContender, NamedCall, OriginFound, OriginalKind,
    PinnedSides, RangesFound, Served, ServerMemory, Setting, Transfers,
};
pub(crate) use receipt::{MechanismReceipt, Receipt};
pub(crate) use statistics::{Summary, summarize};
pub(crate) use unit::{Unit, three_digits};
pub(crate) use variant::{Step, Variant, at_steps, chosen, short_size, unique};
pub(crate) use warnings::warnings;

/// The version of the record's form; raised when a field changes its name or its meaning.
pub(crate) const SCHEMA: u64 = 1;

/// A whole run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Record {
    pub(crate) schema: u64,
    pub(crate) scenario: String,
    /// The scenario of that name, looked up when the record is loaded.
    #[serde(skip)]
    pub(crate) about: &'static Description,
    pub(crate) underpass: String,
    pub(crate) started: String,
    pub(crate) arguments: Arguments,
    pub(crate) environment: Environment,
    pub(crate) baseline: Variant,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copies: Option<Copies>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) samples: Vec<Sample>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) counted: Vec<Counted>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<MissingContender>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Arguments {
    pub(crate) sizes: Vec<u64>,
    pub(crate) mechanisms: Vec<Contender>,
    pub(crate) steps: Vec<Step>,
    pub(crate) runs: u32,
    pub(crate) warmup: u32,
    pub(crate) cold: bool,
    pub(crate) side: Role,
    pub(crate) sink: Option<SinkKind>,
    pub(crate) responses: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) serve: Option<Setting>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transfers: Option<Transfers>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) over: NetworkKind,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) receivers: Receivers,
}

/// The network between a sender and its receiver.
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

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Receivers {
    /// `underpass recv` for all
    #[default]
    Ours,
    /// Each program's own, as in the articles
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
    Client,
    Copier,
    Receiver,
    #[default]
    Sender,
    Server,
}

/// Where a receiver puts the bytes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SinkKind {
    /// Into /dev/null
    Drop,
    /// Into a new file for each sample
    File,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Environment {
    pub(crate) kernel: String,
    pub(crate) machine: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) first_core: usize,
    pub(crate) second_core: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) source_file_system: String,
    pub(crate) target_file_system: Option<String>,
    pub(crate) congestion: Option<String>,
    pub(crate) congestion_default: String,
    pub(crate) load_average: [f64; 3],
    pub(crate) optimized: bool,
    pub(crate) cp: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nginx: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) programs: Vec<String>,
}

/// One size with one variant.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Cell {
    pub(crate) size: u64,
    #[serde(flatten)]
    pub(crate) variant: Variant,
    pub(crate) sha256: Option<String>,
    pub(crate) declined: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<BadClients>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Sample {
    pub(crate) cell: usize,
    pub(crate) round: u32,
    pub(crate) wall_s: f64,
    pub(crate) measured: Side,
    pub(crate) peer: Option<Side>,
    pub(crate) watched_s: f64,
    pub(crate) other_cpu_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) served: Option<Served>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Side {
    pub(crate) role: Role,
    pub(crate) elapsed_s: f64,
    pub(crate) thread: Option<ThreadCost>,
    pub(crate) process: Option<ProcessCost>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct ThreadCost {
    pub(crate) user_s: f64,
    pub(crate) system_s: f64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) calls: u64,
    pub(crate) mechanisms: Vec<MechanismReceipt>,
    pub(crate) user_space_bytes: u64,
}

/// The resources that a process used from its start to its end; of a server all of its processes,
/// while they served the load.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct ProcessCost {
    pub(crate) wall_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    pub(crate) storage_read_bytes: u64,
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
    pub(crate) const fn new(size: u64, variant: Variant) -> Self {
        Self { size, variant, sha256: None, declined: None, connections: None, load: None }
    }

    /// Returns its variant, and the bad clients if there are any.
    pub(crate) fn label(&self) -> String {
        let load = self.load.map(|load| format!(", {}", load.name())).unwrap_or_default();
        format!("{}{load}", self.variant)
    }

    /// Returns the parameters of a cell other than its variant: size, connections, load.
    pub(crate) fn point(&self) -> (u64, Option<u32>, Option<BadClients>) {
        (self.size, self.connections, self.load)
    }
}

impl Side {
    /// Creates a side with a time only.
    pub(crate) const fn new(role: Role, elapsed_s: f64) -> Self {
        Self { role, elapsed_s, thread: None, process: None }
    }

    pub(crate) fn process(role: Role, elapsed_s: f64, process: ProcessCost) -> Self {
        Self { process: Some(process), ..Self::new(role, elapsed_s) }
    }

    /// Returns the processor time of the process, or of the thread if the bench does the work.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.process.map_or_else(|| self.thread_cpu_s(), |process| process.cpu_s)
    }

    pub(crate) fn thread_cpu_s(&self) -> f64 {
        self.thread.as_ref().map_or(0.0, ThreadCost::cpu_s)
    }
}

impl ThreadCost {
    /// Creates the cost of a thread of the bench that moved the bytes in `report`.
    pub(crate) fn of(report: &Report, usage: Usage) -> Self {
        let moved = |(mechanism, Tally { bytes, calls, .. }): (Mechanism, Tally)| {
            MechanismReceipt { name: mechanism.to_string(), bytes, calls }
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

    pub(crate) fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}
