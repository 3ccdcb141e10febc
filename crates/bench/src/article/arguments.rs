//! What can be typed after `bench article-table`, `article-copy`, `article-chunks` and `limit`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::arguments::{RunArgs, some_bytes};
use crate::peers::Peer;
use crate::record::{Over, Receivers};
use crate::way::{Choice, Step};

/// What can be typed after `bench article-table`.
#[derive(Debug, Args)]
pub struct TableArgs {
    /// Sizes of the files
    #[arg(
        long,
        value_name = "LIST",
        default_value = "7M,21M,63M,98M,200M,350M,700M,1G",
        value_delimiter = ',',
        value_parser = some_bytes
    )]
    pub(crate) sizes: Vec<u64>,

    /// Bytes that we ask for in one system call
    #[arg(long, value_name = "LIST", default_value = "default", value_delimiter = ',')]
    pub(crate) step: Vec<Step>,

    /// Our mechanisms, each required; auto: whatever is best
    #[arg(long, value_name = "LIST", default_value = "auto", value_delimiter = ',')]
    pub(crate) mechanism: Vec<Choice>,

    /// The programs beside ours
    #[arg(
        long,
        value_name = "LIST",
        default_value = "java_stream,java_transfer_to,c_read_write,c_sendfile",
        value_delimiter = ','
    )]
    pub(crate) peer: Vec<Peer>,

    #[command(flatten)]
    pub(crate) line: LineArgs,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// What can be typed after `bench article-chunks`.
#[derive(Debug, Args)]
pub struct ChunksArgs {
    /// Sizes of the files
    #[arg(
        long,
        value_name = "LIST",
        default_value = "2G",
        value_delimiter = ',',
        value_parser = some_bytes
    )]
    pub(crate) sizes: Vec<u64>,

    /// Bytes asked for in one system call, by everyone; whole: as many as it takes
    #[arg(long, value_name = "LIST", default_value = "4096,65535,1M,whole", value_delimiter = ',')]
    pub(crate) step: Vec<Step>,

    /// Our mechanisms, each required; auto: whatever is best, which takes no step
    #[arg(long, value_name = "LIST", default_value = "auto,sendfile", value_delimiter = ',')]
    pub(crate) mechanism: Vec<Choice>,

    /// The programs beside ours
    #[arg(
        long,
        value_name = "LIST",
        default_value = "python_sendall,python_sendfile,c_read_write,c_mmap,c_mmap_lease,c_sendfile",
        value_delimiter = ','
    )]
    pub(crate) peer: Vec<Peer>,

    #[command(flatten)]
    pub(crate) line: LineArgs,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// What can be typed after `bench limit`.
#[derive(Debug, Args)]
pub struct LimitArgs {
    /// Sizes of the files
    #[arg(
        long,
        value_name = "LIST",
        default_value = "2G",
        value_delimiter = ',',
        value_parser = some_bytes
    )]
    pub(crate) sizes: Vec<u64>,

    /// Bytes asked for in one system call, by the bare loops and by our mechanisms
    #[arg(long, value_name = "LIST", default_value = "64K,256K,1M,whole", value_delimiter = ',')]
    pub(crate) step: Vec<Step>,

    /// Our mechanisms, each required; auto: whatever is best, which takes no step
    #[arg(long, value_name = "LIST", default_value = "auto", value_delimiter = ',')]
    pub(crate) mechanism: Vec<Choice>,

    /// The programs beside ours and beside the bare loop
    #[arg(
        long,
        value_name = "LIST",
        default_value = "c_sendfile,iperf3,nc,memory_copy",
        value_delimiter = ','
    )]
    pub(crate) peer: Vec<Peer>,

    #[command(flatten)]
    pub(crate) line: LineArgs,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// What can be typed after `bench article-copy`.
#[derive(Debug, Args)]
pub struct SmallCopyArgs {
    /// Sizes of the files
    #[arg(
        long,
        value_name = "LIST",
        default_value = "1G",
        value_delimiter = ',',
        value_parser = some_bytes
    )]
    pub(crate) sizes: Vec<u64>,

    /// Bytes of the buffer, or asked for in one system call
    #[arg(long, value_name = "LIST", default_value = "4K", value_delimiter = ',')]
    pub(crate) step: Vec<Step>,

    /// Our mechanisms, each required; auto: whatever is best, which takes no step
    #[arg(
        long,
        value_name = "LIST",
        default_value = "auto,sendfile,read_write",
        value_delimiter = ','
    )]
    pub(crate) mechanism: Vec<Choice>,

    /// Throw the source out of the page cache before each sample
    #[arg(long)]
    pub(crate) cold: bool,

    /// Where the target is made, if not in --dir
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,

    /// Do not count system calls in a pass of its own
    #[arg(long)]
    pub(crate) no_count: bool,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// What the scenarios with connections have in common.
#[derive(Debug, Args)]
pub(crate) struct LineArgs {
    /// What lies between sender and receiver
    #[arg(long, value_enum, default_value = "loopback")]
    pub(crate) over: Over,

    /// Whose receivers take what peers send
    #[arg(long, value_enum, default_value = "ours")]
    pub(crate) receivers: Receivers,

    /// Congestion control of the whole system meanwhile, as peers take what they find; auto is
    /// the system's own, unless it paces
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) congestion: String,

    /// Throw the source out of the page cache before each sample
    #[arg(long)]
    pub(crate) cold: bool,

    /// Do not count system calls in a pass of its own
    #[arg(long)]
    pub(crate) no_count: bool,
}

impl TableArgs {
    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        self.run.json.as_deref()
    }
}

impl ChunksArgs {
    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        self.run.json.as_deref()
    }
}

impl LimitArgs {
    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        self.run.json.as_deref()
    }
}

impl SmallCopyArgs {
    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        self.run.json.as_deref()
    }
}
