//! What can be typed after `bench`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::record::{Over, Role, SinkKind};
use super::way::{Choice, Step};
use underpass_engine::Size;

/// What all scenarios have in common.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Rounds; in each of them every way takes its turn once at a size
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number(1))]
    pub(crate) runs: u32,

    /// Rounds before them that do not count
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(0))]
    pub(crate) warmup: u32,

    /// Where the files are made, in a folder that is removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,

    /// Write the record there: all samples, and where they were taken; - for standard output
    /// instead of the table
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// What scenarios with mechanisms and steps have in common.
#[derive(Debug, Args)]
pub(crate) struct WayArgs {
    /// Mechanisms, each required; all: those that the scenario is about
    #[arg(long, value_name = "LIST", default_value = "all", value_delimiter = ',')]
    pub(crate) mechanism: Vec<Choice>,

    /// Bytes asked for in one system call; whole: as many as it takes; default: what it takes by
    /// itself
    #[arg(long, value_name = "LIST", default_value = "4K,64K,1M,whole", value_delimiter = ',')]
    pub(crate) step: Vec<Step>,

    /// Throw the source out of the page cache before each sample
    #[arg(long)]
    pub(crate) cold: bool,

    /// Where the target is made, if not in --dir
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
}

/// What can be typed after `bench net`.
#[derive(Debug, Args)]
pub struct NetArgs {
    /// Sizes of the files
    #[arg(
        long,
        value_name = "LIST",
        default_value = "7M,21M,63M,98M,200M,350M,700M,1G",
        value_delimiter = ',',
        value_parser = some_bytes
    )]
    pub(crate) sizes: Vec<u64>,

    /// Where the receiver puts the bytes
    #[arg(long, value_enum, default_value = "drop")]
    pub(crate) sink: SinkKind,

    /// Whose mechanism is varied; the other side chooses by itself
    #[arg(long, value_enum, default_value = "sender")]
    pub(crate) side: SideArg,

    /// What lies between sender and receiver
    #[arg(long, value_enum, default_value = "loopback")]
    pub(crate) over: Over,

    /// Congestion control of the connections; auto is the system's own, unless it paces
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) congestion: String,

    /// Do not count system calls in a pass of its own
    #[arg(long)]
    pub(crate) no_count: bool,

    #[command(flatten)]
    pub(crate) ways: WayArgs,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// What can be typed after `bench copy`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// Sizes of the files
    #[arg(
        long,
        value_name = "LIST",
        default_value = "1G",
        value_delimiter = ',',
        value_parser = some_bytes
    )]
    pub(crate) sizes: Vec<u64>,

    #[command(flatten)]
    pub(crate) ways: WayArgs,

    /// Do not count system calls in a pass of its own
    #[arg(long)]
    pub(crate) no_count: bool,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// What can be typed after `bench chain`.
#[derive(Debug, Args)]
pub struct ChainArgs {
    /// Sizes of the files
    #[arg(
        long,
        value_name = "LIST",
        default_value = "256,512,1K,2K,4K,8K,16K,32K,64K,128K,256K",
        value_delimiter = ',',
        value_parser = some_bytes
    )]
    pub(crate) sizes: Vec<u64>,

    /// Responses of one sample
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = number(1))]
    pub(crate) responses: u32,

    /// Congestion control of the connections; auto is the system's own, unless it paces
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) congestion: String,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SideArg {
    /// It reads from the file
    Sender,
    /// It reads from the connection
    Receiver,
}

impl From<SideArg> for Role {
    fn from(side: SideArg) -> Self {
        match side {
            SideArg::Sender => Self::Sender,
            SideArg::Receiver => Self::Receiver,
        }
    }
}

/// A number of rounds, responses or connections.
pub(crate) fn number(least: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(least..=10_000_000)
}

/// A size of a file that is not empty.
pub(crate) fn some_bytes(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Size(0)) => Err("there is nothing to measure in a file of 0 bytes".to_owned()),
        Ok(Size(bytes)) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

impl NetArgs {
    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        self.run.json.as_deref()
    }
}

impl CopyArgs {
    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        self.run.json.as_deref()
    }
}

impl ChainArgs {
    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        self.run.json.as_deref()
    }
}
