//! What can be typed after `bench get`, `bench put` and `bench tree`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::record::{Memory, Pin};
use crate::arguments::{RunArgs, number, some_bytes};
use crate::way::Way;

/// What can be typed after `bench get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Sizes of the files
    #[arg(
        long,
        value_name = "LIST",
        default_value = "2G",
        value_delimiter = ',',
        value_parser = some_bytes
    )]
    pub(crate) sizes: Vec<u64>,

    /// The server from which they download
    #[arg(long, value_enum, value_name = "SERVER", default_value = "underpass")]
    pub(crate) from: FromArg,

    /// Clients to measure; those that are not installed are left out
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        default_value = "curl,wget,aria2c,underpass",
        value_delimiter = ','
    )]
    pub(crate) client: Vec<GetClient>,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What can be typed after `bench put`.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// Sizes of the files
    #[arg(
        long,
        value_name = "LIST",
        default_value = "2G",
        value_delimiter = ',',
        value_parser = some_bytes
    )]
    pub(crate) sizes: Vec<u64>,

    /// Clients with their servers; those that are not installed are left out
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        default_value = "curl-to-nginx,curl-to-dufs,curl-to-underpass,underpass,underpass-synced",
        value_delimiter = ','
    )]
    pub(crate) way: Vec<PutWay>,

    /// The program dufs, if it is not in PATH
    #[arg(long, value_name = "FILE")]
    pub(crate) dufs: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What can be typed after `bench tree`.
#[derive(Debug, Args)]
pub struct TreeArgs {
    /// Small files, of 1 to 16 KiB, a hundred in each folder
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = number(1))]
    pub(crate) files: u32,

    /// Large files beside them
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number(0))]
    pub(crate) large: u32,

    /// Size of each of those
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = some_bytes)]
    pub(crate) large_size: u64,

    /// Clients to measure; those that are not installed are left out
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        default_value = "wget,underpass",
        value_delimiter = ','
    )]
    pub(crate) client: Vec<TreeClient>,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What they have in common.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Congestion control of the whole system meanwhile, as peers take what they find; auto is the
    /// system's own, unless it paces
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) congestion: String,

    /// Processes that stay on one core; no client does, as some have several threads
    #[arg(long, value_enum, value_name = "WHICH", default_value = "none")]
    pub(crate) pin: Pin,

    /// How each sample finds the memory for its target; many small pieces that were freed just
    /// before are dearer to fill than few large ones
    #[arg(long, value_enum, value_name = "HOW", default_value = "even")]
    pub(crate) memory: Memory,

    /// Do not count system calls in a pass of its own
    #[arg(long)]
    pub(crate) no_count: bool,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The servers from which is downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FromArg {
    /// `underpass serve`
    Underpass,
    /// The peer, as `bench serve` runs it
    Nginx,
}

/// The clients that download.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GetClient {
    /// curl -o
    Curl,
    /// wget -O
    Wget,
    /// aria2c -x4
    Aria2c,
    /// `underpass get`
    Underpass,
}

/// The clients that upload, with their servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PutWay {
    /// curl -T to nginx
    CurlToNginx,
    /// curl -T to dufs
    CurlToDufs,
    /// curl -T to `serve --sync off`
    CurlToUnderpass,
    /// `underpass put` to `serve --sync off`
    Underpass,
    /// `underpass put` to `serve`, which answers once the file is on the disk
    UnderpassSynced,
}

/// The clients that download folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TreeClient {
    /// wget -r
    Wget,
    /// `underpass get -r`
    Underpass,
}

impl GetArgs {
    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        self.common.run.json.as_deref()
    }
}

impl PutArgs {
    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        self.common.run.json.as_deref()
    }
}

impl TreeArgs {
    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        self.common.run.json.as_deref()
    }
}

impl From<FromArg> for Way {
    fn from(server: FromArg) -> Self {
        match server {
            FromArg::Nginx => Self::Nginx,
            FromArg::Underpass => Self::Underpass,
        }
    }
}

impl From<GetClient> for Way {
    fn from(client: GetClient) -> Self {
        match client {
            GetClient::Aria2c => Self::Aria2,
            GetClient::Curl => Self::Curl,
            GetClient::Underpass => Self::Underpass,
            GetClient::Wget => Self::Wget,
        }
    }
}

impl From<PutWay> for Way {
    fn from(way: PutWay) -> Self {
        match way {
            PutWay::CurlToDufs => Self::CurlToDufs,
            PutWay::CurlToNginx => Self::CurlToNginx,
            PutWay::CurlToUnderpass => Self::CurlToUnderpass,
            PutWay::Underpass => Self::Underpass,
            PutWay::UnderpassSynced => Self::UnderpassSynced,
        }
    }
}

impl From<TreeClient> for Way {
    fn from(client: TreeClient) -> Self {
        match client {
            TreeClient::Underpass => Self::Underpass,
            TreeClient::Wget => Self::Wget,
        }
    }
}
