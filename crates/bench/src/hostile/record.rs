//! What a sample of `hostile` tells.

use serde::{Deserialize, Serialize};

use crate::serve::Latency;

/// A good client beside bad ones.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Hostile {
    /// What the good client got before the bad ones came.
    pub(crate) alone: Good,
    /// What it got beside them.
    pub(crate) beside: Good,
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
pub(crate) struct Good {
    /// Requests that were answered as they should be.
    pub(crate) answered: u64,
    /// Requests that were not.
    pub(crate) failed: u64,
    /// From connecting to the end of the response, of those that were answered; absent if none was.
    pub(crate) latency: Option<Latency>,
}
