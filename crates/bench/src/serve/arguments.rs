//! What can be typed after `bench serve`.

use std::path::Path;

use clap::{Args, Subcommand, ValueEnum};

use crate::arguments::{RunArgs, number, some_bytes};
use crate::way::Way;

/// What can be typed after `bench serve`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ServeArgs {
    /// What to measure; requests if nothing is named.
    #[command(subcommand)]
    scenario: Option<ServeScenario>,

    #[command(flatten)]
    requests: RequestsArgs,
}

/// The scenarios with servers.
#[derive(Debug, Subcommand)]
enum ServeScenario {
    /// Requests as fast as they are answered: processor time of each, and how many in a second
    Requests(RequestsArgs),
    /// The latency of a hot file, alone and while cold files are streamed
    Fairness(FairnessArgs),
    /// New connections with TLS, each for one request: processor time of each, and how many in a
    /// second
    Handshakes(HandshakesArgs),
    /// Memory with very many idle connections and slow downloads, and how soon a new one is served
    Idle(IdleArgs),
}

/// Which of the scenarios was typed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chosen<'a> {
    /// Requests.
    Requests(&'a RequestsArgs),
    /// Fairness.
    Fairness(&'a FairnessArgs),
    /// Handshakes.
    Handshakes(&'a HandshakesArgs),
    /// Idle.
    Idle(&'a IdleArgs),
}

/// What can be typed after `bench serve requests`.
#[derive(Debug, Args)]
pub(crate) struct RequestsArgs {
    /// Sizes of the files
    #[arg(
        long,
        value_name = "LIST",
        default_value = "1K,10K,100K,1M,1G",
        value_delimiter = ',',
        value_parser = some_bytes
    )]
    pub(crate) sizes: Vec<u64>,

    /// Connections; fewer for files of more than 2M, down to two
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = number(1))]
    pub(crate) connections: u32,

    /// Encrypt connections with TLS 1.3, by the same suite for all servers
    #[arg(long)]
    pub(crate) tls: bool,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What can be typed after `bench serve handshakes`.
#[derive(Debug, Args)]
pub(crate) struct HandshakesArgs {
    /// Sizes of the files
    #[arg(
        long,
        value_name = "LIST",
        default_value = "1K",
        value_delimiter = ',',
        value_parser = some_bytes
    )]
    pub(crate) sizes: Vec<u64>,

    /// Connections at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = number(1))]
    pub(crate) connections: u32,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What can be typed after `bench serve fairness`.
#[derive(Debug, Args)]
pub(crate) struct FairnessArgs {
    /// Size of the hot file
    #[arg(long, value_name = "SIZE", default_value = "10K", value_parser = some_bytes)]
    pub(crate) size: u64,

    /// Connections that ask for the hot file
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = number(1))]
    pub(crate) connections: u32,

    /// Clients beside them, each with a cold file of its own
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = number(1))]
    pub(crate) streams: u32,

    /// Size of each cold file
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = some_bytes)]
    pub(crate) stream_size: u64,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What can be typed after `bench serve idle`.
#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    /// Connections that are kept alive after one request
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = number(1))]
    pub(crate) idle: u32,

    /// Downloads that stop after a few KiB
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = number(1))]
    pub(crate) slow: u32,

    /// Size of the file that is downloaded slowly
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = some_bytes)]
    pub(crate) size: u64,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What can be typed after `bench scale`.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// Connections at once, all of which ask for the same file again and again
    #[arg(
        long,
        value_name = "LIST",
        default_value = "1,4,16,64,256,1024",
        value_delimiter = ',',
        value_parser = number(1)
    )]
    pub(crate) connections: Vec<u32>,

    /// Size of the file that they ask for
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = some_bytes)]
    pub(crate) size: u64,

    /// Sizes of the files that few connections ask for
    #[arg(
        long,
        value_name = "LIST",
        default_value = "1K,10K,100K,1M,10M,100M,1G,10G",
        value_delimiter = ',',
        value_parser = some_bytes
    )]
    pub(crate) sizes: Vec<u64>,

    /// From this size on files are sparse: in memory when they are measured, but on no disk
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = some_bytes)]
    pub(crate) sparse_from: u64,

    /// How many those connections are
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = number(1))]
    pub(crate) at: u32,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What they have in common.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Servers to measure; only those that are installed
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        default_value = "nginx,underpass",
        value_delimiter = ','
    )]
    pub(crate) server: Vec<ServerArg>,

    /// Seconds of a sample
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    pub(crate) seconds: f64,

    /// Let all servers write access logs
    #[arg(long)]
    pub(crate) log: bool,

    /// Congestion control of the whole system meanwhile, as servers take what they find; auto is
    /// the system's own, unless it paces
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) congestion: String,

    /// Do not count system calls in a pass of its own
    #[arg(long)]
    pub(crate) no_count: bool,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServerArg {
    /// A server in Rust that answers with hyper
    Dufs,
    /// A server in Rust that answers with actix
    Miniserve,
    /// The peer
    Nginx,
    /// `underpass serve`
    Underpass,
}

impl ServeArgs {
    /// Which scenario was typed.
    pub(crate) fn chosen(&self) -> Chosen<'_> {
        match &self.scenario {
            None => Chosen::Requests(&self.requests),
            Some(ServeScenario::Requests(args)) => Chosen::Requests(args),
            Some(ServeScenario::Fairness(args)) => Chosen::Fairness(args),
            Some(ServeScenario::Handshakes(args)) => Chosen::Handshakes(args),
            Some(ServeScenario::Idle(args)) => Chosen::Idle(args),
        }
    }

    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        let common = match self.chosen() {
            Chosen::Requests(args) => &args.common,
            Chosen::Fairness(args) => &args.common,
            Chosen::Handshakes(args) => &args.common,
            Chosen::Idle(args) => &args.common,
        };
        common.run.json.as_deref()
    }
}

impl From<ServerArg> for Way {
    fn from(server: ServerArg) -> Self {
        match server {
            ServerArg::Dufs => Self::Dufs,
            ServerArg::Miniserve => Self::Miniserve,
            ServerArg::Nginx => Self::Nginx,
            ServerArg::Underpass => Self::Underpass,
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a sample takes 0.01 to 3600 seconds".to_owned()),
    }
}

impl ScaleArgs {
    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        self.common.run.json.as_deref()
    }
}
