//! What the record of a run with clients has that others have not.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::way::Way;

/// What was asked for.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Transfers {
    /// The server from which all clients downloaded; absent of uploads, where each way has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<Way>,
    /// Small files of the folder; absent if a single file was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<u32>,
    /// Large files of the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) large: Option<u32>,
    /// Bytes of each of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) large_bytes: Option<u64>,
    /// Which processes were kept on a core.
    pub(crate) pinned: Pin,
    /// How the samples found the memory.
    pub(crate) memory: Memory,
    /// What was run for each way.
    pub(crate) commands: Vec<Commands>,
    /// Programs that were to be measured but are not installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<String>,
}

/// Which processes stay on one core.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pin {
    /// None: all of them run as they do without a bench
    #[default]
    None,
    /// The server on the second core
    Server,
}

/// How a sample finds the memory that its target is going to take.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Memory {
    /// All alike: a file as large as the target is written before and removed
    #[default]
    Even,
    /// As the client before has left it
    Found,
}

/// What was run for a way, with words in capitals for what is another one each time.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Commands {
    /// The way.
    pub(crate) way: Way,
    /// The client, which is what is measured.
    pub(crate) client: String,
    /// The server.
    pub(crate) server: String,
}
