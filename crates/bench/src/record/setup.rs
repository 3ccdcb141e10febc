//! The fields of a record that only runs with clients and copies have.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::contender::Contender;

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Transfers {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<Contender>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) large: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) large_bytes: Option<u64>,
    pub(crate) pinned: PinnedSides,
    pub(crate) memory: MemoryState,
    pub(crate) commands: Vec<CommandLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<String>,
}

/// Which processes stay on one core.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PinnedSides {
    /// No process
    #[default]
    None,
    /// The server on the second core
    Server,
}

/// The state of the memory for a sample's target.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MemoryState {
    /// All alike: a file as large as the target is written before and removed
    #[default]
    Even,
    /// As the client before has left it
    Found,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Copies {
    pub(crate) original: OriginalKind,
    pub(crate) files: u64,
    pub(crate) allocated_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chilled: Option<Dropped>,
    pub(crate) earlier: EarlierCopies,
    pub(crate) commands: Vec<CommandLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OriginalKind {
    /// One file of random bytes.
    #[default]
    File,
    /// An existing folder.
    Folder,
    /// A folder of files of 1 to 16 KiB.
    SmallFiles,
    /// A file with holes, and one with the same data and without holes.
    Sparse,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dropped {
    /// All caches of the system: bytes, names and metadata.
    AllCaches,
    /// The bytes of its files.
    PageCache,
}

/// Whether copies of earlier rounds are kept or removed.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EarlierCopies {
    /// They stay until the end: for minutes after the removal of thousands of files, ext4 takes
    /// several times as long to create new ones, whichever program does that.
    #[default]
    Stay,
    /// They are removed after each sample, for there is no room for all of them.
    Removed,
}

/// The command line of a contender, with words in capitals for values that differ each time.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct CommandLine {
    #[serde(rename = "way")]
    pub(crate) contender: Contender,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
}

impl CommandLine {
    /// Creates an empty line for a contender that was not run.
    pub(crate) const fn of(contender: Contender) -> Self {
        Self { contender, command: None, client: None, server: None }
    }
}
