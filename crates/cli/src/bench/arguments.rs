//! What can be typed after `bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::article::{ChunksArgs, LimitArgs, SmallCopyArgs, TableArgs};
use super::compare::CompareArgs;
use super::cp::CpArgs;
use super::hostile::HostileArgs;
use super::record::{Over, Role, SinkKind};
use super::serve::{ScaleArgs, ServeArgs};
use super::show::ShowArgs;
use super::transfer::{GetArgs, PutArgs, TreeArgs};
use super::way::{Choice, Step};
use crate::size::Size;

/// What can be typed after `bench`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = false)]
pub(crate) struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) scenario: ScenarioArgs,
}

/// The scenarios.
#[derive(Debug, Subcommand)]
pub(crate) enum ScenarioArgs {
    /// Files over loopback TCP, from one process to another: the table of the articles
    Net(NetArgs),
    /// Files to files, beside the cp of this system
    Copy(CopyArgs),
    /// An article's table: files of several sizes over TCP, beside Java's streams and transferTo
    #[command(name = "article-table")]
    ArticleTable(TableArgs),
    /// An article's copy through a small buffer, with time and number of each system call
    #[command(name = "article-copy")]
    ArticleCopy(SmallCopyArgs),
    /// An article's file by chunks of several sizes, beside Python and C, with system calls
    #[command(name = "article-chunks")]
    ArticleChunks(ChunksArgs),
    /// How far from a bare loop around sendfile, and from the machine's memory
    Limit(LimitArgs),
    /// A large file, many small ones, a folder or a file with holes, beside cp -a, xcp, fcp, rsync and
    /// tar
    Cp(CpArgs),
    /// Headers with small files over TCP: up to which size one buffer is cheaper than sendfile
    Chain(ChainArgs),
    /// The file server under load, beside nginx
    Serve(Box<ServeArgs>),
    /// The file server with thousands of bad clients, as a good one sees it, beside nginx
    Hostile(Box<HostileArgs>),
    /// The file server as connections become more and files larger: throughput, processor time,
    /// memory
    Scale(ScaleArgs),
    /// Downloads into files, beside curl, wget and aria2c
    Get(GetArgs),
    /// Uploads, beside curl to nginx and to dufs
    Put(PutArgs),
    /// A folder of many files, beside wget
    Tree(TreeArgs),
    /// Show records: a table with bars, Markdown, a page with charts, charts as files
    Show(ShowArgs),
    /// Compare two records: what got better or worse by more than noise; exits with 3 if
    /// something got worse
    Compare(CompareArgs),
}

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
pub(crate) struct NetArgs {
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
pub(crate) struct CopyArgs {
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
pub(crate) struct ChainArgs {
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
