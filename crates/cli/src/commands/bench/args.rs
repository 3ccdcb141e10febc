//! What can be typed after `bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use underpass_bench::{
    Benchmark, ChainArgs, ChunksArgs, CopyArgs, CpArgs, GetArgs, HostileArgs, LimitArgs, NetArgs,
    PutArgs, ScaleArgs, ServeArgs, SmallCopyArgs, TableArgs, TreeArgs,
};

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

impl ScenarioArgs {
    /// What is to be measured; none if records are to be shown.
    pub(super) fn benchmark(&self) -> Option<&dyn Benchmark> {
        Some(match self {
            Self::Net(args) => args,
            Self::Copy(args) => args,
            Self::ArticleTable(args) => args,
            Self::ArticleCopy(args) => args,
            Self::ArticleChunks(args) => args,
            Self::Limit(args) => args,
            Self::Cp(args) => args,
            Self::Chain(args) => args,
            Self::Serve(args) => &**args,
            Self::Hostile(args) => &**args,
            Self::Scale(args) => args,
            Self::Get(args) => args,
            Self::Put(args) => args,
            Self::Tree(args) => args,
            Self::Show(_) | Self::Compare(_) => return None,
        })
    }
}

/// What can be typed after `bench show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Records that --json has written
    #[arg(value_name = "RECORD", required = true)]
    pub(crate) records: Vec<PathBuf>,

    /// Write a report with charts: one page that needs nothing else; - for standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Write the tables as Markdown; - for standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,

    /// Write each chart as a file into this folder, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,

    /// Draw bars with letters of ASCII alone
    #[arg(long, conflicts_with_all = ["html", "markdown", "svg"])]
    pub(crate) ascii: bool,
}

/// What can be typed after `bench compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The record that is compared with
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,

    /// The record that is compared
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,

    /// Compare how each contender stands to the baseline of its own record and round: for records of
    /// different machines or days
    #[arg(long)]
    pub(crate) relative: bool,

    /// Differences that do not matter, in percent, even if they are no noise
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    pub(crate) margin: f64,
}

/// A percentage that can be a margin.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err("a margin is a number of percent from 0 to 1000".to_owned()),
    }
}
