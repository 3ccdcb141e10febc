//! The receipt of a share, and its verdict.

use indicatif::BinaryBytes;
use serde::Serialize;
use underpass_engine::Tally;
use underpass_receipt::MechanismReceipt;
use underpass_server::access_log::AccessEntry;

use crate::failure::{Failure, Result};
use crate::output::{self, counted};

/// The purpose of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Clients download a file.
    File,
    /// Clients download a folder, as an archive.
    Folder,
    /// Clients upload files.
    Uploads,
}

/// The receipt of a share.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ShareReceipt {
    /// The reason why the share failed; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Whole downloads.
    pub(super) downloads: u64,
    /// Files that were received whole.
    pub(super) uploads: u64,
    /// Bytes of bodies in both directions, those of broken transfers too.
    bytes: u64,
    pub(super) elapsed_s: f64,
    mechanisms: Vec<MechanismReceipt>,
    calls: u64,
    user_space_bytes: u64,
}

impl ShareReceipt {
    /// Returns the receipt of a share that failed before it began.
    pub(super) fn not_begun(failure: &Failure) -> Self {
        Self { error: Some(failure.to_string()), ..Self::default() }
    }

    /// Returns whether nothing was transferred.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.downloads + self.uploads == 0
    }

    /// Counts what a response has moved.
    pub(super) fn add(&mut self, entry: &AccessEntry) {
        self.bytes += entry.acknowledged + entry.received;
        self.calls += entry.calls;
        self.user_space_bytes += entry.user_space_bytes;
        for &(mechanism, Tally { bytes, calls, .. }) in &entry.mechanisms {
            let name = mechanism.name();
            match self.mechanisms.iter_mut().find(|known| known.name == name) {
                Some(known) => {
                    known.bytes += bytes;
                    known.calls += calls;
                }
                None => self.mechanisms.push(MechanismReceipt {
                    mechanism: None,
                    name: name.to_owned(),
                    bytes,
                    calls,
                }),
            }
        }
    }

    /// Prints the receipt of a share with this goal.
    pub(super) fn print(&self, as_json: bool, goal: Goal) {
        if as_json {
            return output::json_line(self);
        }
        let names: Vec<_> = self.mechanisms.iter().map(|each| each.name.as_str()).collect();
        let by = if names.is_empty() { String::new() } else { format!(" by {}", names.join(", ")) };
        let count = match goal {
            Goal::Uploads => counted(self.uploads, "file received", "files received"),
            Goal::File | Goal::Folder => {
                counted(self.downloads, "complete download", "complete downloads")
            }
        };
        output::error_line(&format!(
            "{count}: {}{by}, {} bytes in user space",
            BinaryBytes(self.bytes),
            self.user_space_bytes
        ));
    }

    /// Fails unless the share was fetched or received as often as requested.
    pub(super) fn verdict(&self, times: Option<u64>) -> Result<()> {
        match self.downloads + self.uploads {
            count if count >= times.unwrap_or(1) => Ok(()),
            0 => Err(Failure::line("the share ended before a transfer was complete")),
            count => Err(Failure::line(format!(
                "the share ended after {count} of {} transfers",
                times.unwrap_or(1)
            ))),
        }
    }
}
