//! What the record of a run with servers has that others have not.

use serde::{Deserialize, Serialize};

/// The requested options.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Setting {
    /// Connections that always have a request under way; fewer at large sizes.
    pub(crate) connections: u32,
    /// Whether there are as many at every size.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) all_connections: bool,
    pub(crate) seconds: f64,
    pub(crate) log: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) tls: bool,
    /// Clients that stream a large file each; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) streams: Option<u32>,
    /// Bytes of each of those files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream_bytes: Option<u64>,
    /// Connections that are kept alive and ask for nothing; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idle: Option<u32>,
    /// From which size on files were sparse: the memory holds them, no disk has to; absent if all
    /// were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sparse_from: Option<u64>,
    /// Downloads that have stopped half-way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slow: Option<u32>,
}

/// What the clients of a server saw in one sample.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Served {
    /// Requests, one after the other on each connection (`serve`), or connections with one request
    /// each (`serve_handshakes`).
    Requests(Load),
    /// Requests, and the memory that the server took for them (`scale`).
    Scale {
        load: Load,
        /// The server's memory before the first of them.
        start: ServerMemory,
        /// The memory while they were being answered.
        busy: ServerMemory,
    },
    /// Requests for a hot file, alone and while large ones are streamed (`serve_fairness`).
    Fairness {
        /// Without others.
        alone: Load,
        /// While the large files were streamed.
        beside: Load,
        /// Bytes of the large files that arrived meanwhile.
        streamed_bytes: u64,
    },
    /// A cache in front of an origin (`origin`).
    Origin(OriginFound),
    /// A good client, while bad ones are connected (`hostile`).
    Hostile(Hostile),
    /// Very many connections at once (`serve_idle`).
    Idle {
        /// The server's memory after one request.
        start: ServerMemory,
        /// The memory with the idle connections.
        idle: ServerMemory,
        /// The memory with the slow downloads in addition.
        slow: ServerMemory,
        /// The latency of a small response then, from connecting to its end.
        answers: Latency,
    },
}

/// Requests without a pause.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Load {
    pub(crate) connections: u32,
    /// Seconds for which they asked.
    pub(crate) elapsed_s: f64,
    /// Responses that were completed meanwhile.
    pub(crate) responses: u64,
    /// Bytes of bodies that arrived meanwhile. Divided by the size they are the responses, those
    /// that were under way at the begin and at the end counted by what of them arrived in between.
    pub(crate) bytes: u64,
    /// From the request to the last byte of its response; absent if none was completed.
    pub(crate) latency: Option<Latency>,
    /// Processor seconds of the whole machine meanwhile, interrupts included; absent in older
    /// records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine_s: Option<f64>,
}

/// How long responses took.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Latency {
    /// What half of them did not exceed.
    pub(crate) p50_s: f64,
    /// What 99 of 100 did not exceed.
    pub(crate) p99_s: f64,
    pub(crate) max_s: f64,
}

/// Memory of all processes of a server together.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct ServerMemory {
    /// Resident, what several processes share counted for each of them.
    pub(crate) resident_bytes: u64,
    /// Resident, what several processes share, also with others, counted by parts.
    pub(crate) proportional_bytes: u64,
}

/// What clients of a cache found, and its origin.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct OriginFound {
    /// Seconds of one client at the origin itself, for the object that the crowd asks for.
    pub(crate) direct_s: f64,
    /// Seconds until the last of the crowd had the object.
    pub(crate) crowd_s: f64,
    /// Bytes that the origin sent meanwhile.
    pub(crate) crowd_origin_bytes: u64,
    /// Processor seconds of the cache meanwhile.
    pub(crate) crowd_cpu_s: f64,
    /// Seconds until each of the crowd had the object once more.
    pub(crate) warm_s: f64,
    /// Processor seconds of the cache meanwhile.
    pub(crate) warm_cpu_s: f64,
    /// Seconds of the same with `underpass serve` and the file.
    pub(crate) plain_s: f64,
    /// Ranges of a large object, if the cache fetches less than the whole of it.
    pub(crate) ranges: Option<RangesFound>,
    /// Requests for the hot set during the scan, and those of them that reached the origin.
    pub(crate) hot: (u64, u64),
    /// The most bytes that the cache had on its disk meanwhile, and those that it may have.
    pub(crate) kept: (u64, u64),
    /// Resident memory after the crowd.
    pub(crate) memory: ServerMemory,
}

/// What clients got that requested ranges at random.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct RangesFound {
    /// The bytes that they requested.
    pub(crate) asked_bytes: u64,
    /// Bytes that the origin sent.
    pub(crate) origin_bytes: u64,
    /// Until half of them had their first byte.
    pub(crate) first_s: f64,
    /// Until half of the requests to the origin itself had their first byte.
    pub(crate) direct_first_s: f64,
}

impl Served {
    /// Returns the bytes of files that arrived; none where something else was measured.
    pub(crate) const fn bytes(&self) -> Option<u64> {
        match self {
            Self::Requests(load) | Self::Scale { load, .. } => Some(load.bytes),
            Self::Fairness { streamed_bytes, .. } => Some(*streamed_bytes),
            Self::Hostile(_) | Self::Idle { .. } | Self::Origin(_) => None,
        }
    }
}

/// A good client, while bad ones are connected.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Hostile {
    /// What the good client got before the bad ones came.
    pub(crate) alone: GoodClient,
    /// What it got while they were connected.
    pub(crate) beside: GoodClient,
    /// What it got beside the same bad clients while those were at a server that does nothing but
    /// accept and close: what the load alone costs on this machine. Absent in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) floor: Option<GoodClient>,
    /// Connections that the bad clients had open at the end.
    pub(crate) open: u32,
    /// Connections that they began altogether.
    pub(crate) begun: u64,
    /// Resident memory of the server before they came.
    pub(crate) start_bytes: u64,
    /// The most resident memory that the server had.
    pub(crate) peak_bytes: u64,
}

/// Requests of the good client, each on a new connection.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct GoodClient {
    /// Requests that were answered as they should be.
    pub(crate) answered: u64,
    /// Requests that were not.
    pub(crate) failed: u64,
    /// From connecting to the end of the response, of those that were answered; absent if none was.
    pub(crate) latency: Option<Latency>,
}

/// The kinds of bad clients.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BadClients {
    /// They connect and send nothing
    Idle,
    /// They send a long head, its end a byte at a time
    SlowHeads,
    /// They request a large file and read a little now and then
    SlowReaders,
    /// They request a large file and reset the connection
    Resets,
    /// They request as many ranges as fit into a head
    Ranges,
    /// They begin a handshake and do not end it
    PartialHellos,
    /// They do a TLS handshake, send one request and leave
    Handshakes,
    /// They try passwords
    Passwords,
    /// They send requests and never read
    Pipelines,
    /// They request the size of a folder as a tar archive
    Archives,
    /// They request the page of a large folder and do not read it
    Listings,
    /// They upload a byte at a time
    SlowUploads,
}

impl BadClients {
    /// Returns their name for people.
    pub(crate) fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |value| value.get_name().replace('-', " "))
    }
}
