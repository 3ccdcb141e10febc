//! Entries of the access log that wait for the acknowledgement of their response, and the buffers
//! in which their lines are formatted.

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
    #[allow(clippy::vec_box)] // each is large and moves without a copy
    pub(crate) spare: Vec<Box<AccessEntry>>,
}

impl Default for LineBuffers {
    fn default() -> Self {
        Self { time: TimeText::local(), line: Vec::new(), spare: Vec::new() }
    }
}
