//! The arguments of `bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use underpass_bench::{
    Benchmark, ChainArgs, ChunksArgs, CopyArgs, CpArgs, GetArgs, HostileArgs, LimitArgs, NetArgs,
    OriginArgs, PutArgs, Run, ScaleArgs, ServeArgs, SmallCopyArgs, TableArgs, TreeArgs,
};

/// The arguments of `bench`.
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
    /// Measure files over TCP from one process to another, by each mechanism
    Net(Run<NetArgs>),
    /// Measure copies of files by each mechanism, compared with cp
    Copy(Run<CopyArgs>),
    /// Repeat an article's table: files of several sizes over TCP, compared with Java
    #[command(name = "article-table")]
    ArticleTable(Run<TableArgs>),
    /// Repeat an article's copy through a small buffer, with the time and number of each system
    /// call
    #[command(name = "article-copy")]
    ArticleCopy(Run<SmallCopyArgs>),
    /// Repeat an article's transfer in chunks of several sizes, compared with Python and C
    #[command(name = "article-chunks")]
    ArticleChunks(Run<ChunksArgs>),
    /// Compare transfers with a bare loop around sendfile and with copying memory
    Limit(Run<LimitArgs>),
    /// Measure copies of a large file, many small files, a folder or a file with holes, compared
    /// with xcp, fcp, rsync, tar and cp -a
    Cp(Run<CpArgs>),
    /// Find the size up to which one buffer is cheaper than sendfile for a header and a small file
    Chain(Run<ChainArgs>),
    /// Measure the file server under load, compared with nginx
    Serve(Box<ServeArgs>),
    /// Measure what one well-behaved client gets from the file server among thousands of hostile
    /// ones
    Hostile(Box<Run<HostileArgs>>),
    /// Measure caches in front of an origin: parallel misses, hits, ranges, a scan; compared with
    /// nginx, Varnish, Squid and Traffic Server
    Origin(Run<OriginArgs>),
    /// Measure throughput, processor time and memory of the file server by connections and file
    /// size
    Scale(Run<ScaleArgs>),
    /// Measure downloads, compared with curl, wget and aria2c
    Get(Run<GetArgs>),
    /// Measure uploads, compared with curl to nginx and to dufs
    Put(Run<PutArgs>),
    /// Measure the download of a folder of many files, compared with wget
    Tree(Run<TreeArgs>),
    /// Show records as tables with bars, as Markdown, as a page with charts, or as chart files
    Show(ShowRecordsArgs),
    /// Compare two records, and exit with 3 if something got worse by more than the noise
    Compare(CompareArgs),
}

impl ScenarioArgs {
    /// Returns the scenario to measure; none if records are to be shown.
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
            Self::Serve(args) => args.chosen(),
            Self::Hostile(args) => &**args,
            Self::Origin(args) => args,
            Self::Scale(args) => args,
            Self::Get(args) => args,
            Self::Put(args) => args,
            Self::Tree(args) => args,
            Self::Show(_) | Self::Compare(_) => return None,
        })
    }
}

/// The arguments of `bench show`.
#[derive(Debug, Args)]
pub(crate) struct ShowRecordsArgs {
    /// Records that were written with --json
    #[arg(value_name = "RECORD", required = true)]
    pub(crate) records: Vec<PathBuf>,

    /// Write a report with charts as one HTML file; - for standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Write the tables as Markdown; - for standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,

    /// Write each chart to a file in this folder, which is created if it is missing
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,

    /// Draw the bars in ASCII
    #[arg(long, conflicts_with_all = ["html", "markdown", "svg"])]
    pub(crate) ascii: bool,
}

/// The arguments of `bench compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The record of the earlier run
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,

    /// The record of the later run
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,

    /// Compare ratios to the baseline of the same record and round: for records of different
    /// machines or days
    #[arg(long)]
    pub(crate) relative: bool,

    /// Ignore differences of up to this percentage
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    pub(crate) margin: f64,
}

/// Parses a percentage that can be a margin.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err("a margin is a number of percent from 0 to 1000".to_owned()),
    }
}
