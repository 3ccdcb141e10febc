//! What the record of a run with servers has that others have not.

use serde::{Deserialize, Serialize};

use crate::hostile::Hostile;

/// What was asked for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Setting {
    /// Connections that always have a request under way; fewer at large sizes.
    pub(crate) connections: u32,
    /// Seconds of a sample.
    pub(crate) seconds: f64,
    /// Whether every server wrote an access log.
    pub(crate) log: bool,
    /// Whether connections were encrypted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) tls: bool,
    /// Clients that stream a cold file each; absent if there were none.
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
    /// Of `serve`: requests, one after the other on each connection. Of `serve_handshakes`:
    /// connections with one request each.
    Requests(Load),
    /// Of `scale`: requests, and what they did to the server's memory.
    Scale {
        /// The requests.
        load: Load,
        /// The server's memory before the first of them.
        start: Memory,
        /// The same while they were being answered.
        busy: Memory,
    },
    /// Of `serve_fairness`: requests for a hot file, without others and beside cold ones.
    Fairness {
        /// Without others.
        alone: Load,
        /// While the cold files were streamed.
        beside: Load,
        /// Bytes of the cold files that arrived meanwhile.
        streamed_bytes: u64,
    },
    /// Of `hostile`: a good client beside bad ones.
    Hostile(Hostile),
    /// Of `serve_idle`: very many connections at once.
    Idle {
        /// The server's memory after one request.
        start: Memory,
        /// The same with the idle connections.
        idle: Memory,
        /// The same with the slow downloads besides.
        slow: Memory,
        /// Then: from connecting to the end of a small response.
        answers: Latency,
    },
}

/// Requests without a pause.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Load {
    /// Connections.
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
}

/// How long responses took.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Latency {
    /// What half of them did not exceed.
    pub(crate) p50_s: f64,
    /// What 99 of 100 did not exceed.
    pub(crate) p99_s: f64,
    /// The longest.
    pub(crate) max_s: f64,
}

/// Memory of all processes of a server together.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    /// Resident, what several processes share counted for each of them.
    pub(crate) resident_bytes: u64,
    /// Resident, what several processes share, also with others, counted by parts.
    pub(crate) proportional_bytes: u64,
}

impl Served {
    /// Bytes of files that arrived, if that is what was measured.
    pub(crate) const fn bytes(&self) -> Option<u64> {
        match self {
            Self::Requests(load) | Self::Scale { load, .. } => Some(load.bytes),
            Self::Fairness { streamed_bytes, .. } => Some(*streamed_bytes),
            Self::Hostile(_) | Self::Idle { .. } => None,
        }
    }
}
