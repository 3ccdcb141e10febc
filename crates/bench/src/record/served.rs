//! The fields of a record that only runs with servers have.

use serde::{Deserialize, Serialize};

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
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
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
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |value| value.get_name().replace('-', " "))
    }
}
