//! What the record of `bench cp` has that others have not.

use serde::{Deserialize, Serialize};

use crate::way::Way;

/// What was copied, and how.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Copies {
    /// What was copied.
    pub(crate) original: Kind,
    /// Its files.
    pub(crate) files: u64,
    /// Bytes that they took on the disk.
    pub(crate) allocated_bytes: u64,
    /// How it was thrown out of memory before each sample; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chilled: Option<Chilled>,
    /// What became of earlier copies.
    pub(crate) earlier: Earlier,
    /// What was run for each way.
    pub(crate) commands: Vec<Commands>,
    /// Programs that were to be measured but are not installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<String>,
}

/// What is copied.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// One file of random bytes.
    #[default]
    File,
    /// A folder that was there.
    Folder,
    /// A folder of files of 1 to 16 KiB.
    SmallFiles,
    /// A file with holes, beside one with the same data and without holes.
    Sparse,
}

/// How something is thrown out of memory.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Chilled {
    /// Everything of everybody: bytes, names and facts.
    AllCaches,
    /// The bytes of its files.
    PageCache,
}

/// What becomes of earlier copies.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Earlier {
    /// They stay until the end: after the removal of thousands of files ext4 takes several times as
    /// long to make new ones, for minutes, whoever makes them.
    #[default]
    Stay,
    /// They are removed after each sample, for there is no room for all of them.
    Removed,
}

/// What was run for a way, with words in capitals for what is another one each time.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Commands {
    /// The way.
    pub(crate) way: Way,
    /// What was run.
    pub(crate) command: String,
}
