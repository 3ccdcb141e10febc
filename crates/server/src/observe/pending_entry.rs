//! Entries of the access log that wait: until it is known how much of the response has arrived, and
//! until their line is written.

use underpass_observe::access_log::{AccessEntry, TimeText};

/// The entry of an exchange whose response was sent, until it is known how much of it arrived.
#[derive(Debug)]
pub(crate) struct PendingEntry {
    pub(crate) entry: Box<AccessEntry>,
    /// The number of bytes written to the connection at the end of the response.
    pub(crate) end: u64,
}

/// The buffers with which one worker formats its lines.
#[derive(Debug)]
pub(crate) struct LineBuffers {
    pub(crate) time: TimeText,
    pub(crate) line: Vec<u8>,
    /// Entries whose memory can be used again.
    #[allow(clippy::vec_box)] // each is handed on as it is, and is large
    pub(crate) spare: Vec<Box<AccessEntry>>,
}

impl Default for LineBuffers {
    fn default() -> Self {
        Self { time: TimeText::local(), line: Vec::new(), spare: Vec::new() }
    }
}
