//! Entries of the access log on their way: until it is known how much of a response has arrived, and
//! until their line is written.

use crate::observe::access_log::{AccessEntry, TimeText};

/// The entry of an exchange whose response was sent, until it is known how much of it arrived.
#[derive(Debug)]
pub(crate) struct PendingEntry {
    pub(crate) entry: Box<AccessEntry>,
    /// Bytes written to the connection when the response was outcome.
    pub(crate) end: u64,
}

/// What the lines of one worker are made with.
#[derive(Debug)]
pub(crate) struct LogBuffer {
    pub(crate) time: TimeText,
    pub(crate) line: Vec<u8>,
    /// Entries whose memory can be used again.
    #[allow(clippy::vec_box)] // each is handed on as it is, and is large
    pub(crate) spare: Vec<Box<AccessEntry>>,
}

impl Default for LogBuffer {
    fn default() -> Self {
        Self { time: TimeText::local(), line: Vec::new(), spare: Vec::new() }
    }
}
