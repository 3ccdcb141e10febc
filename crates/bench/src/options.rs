//! Options that several scenarios have in common.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, RangedI64ValueParser, TypedValueParser};
use underpass_engine::{Mechanism, Size};

use crate::error::Result;
use crate::record::{Contender, Record, Step, short_size};
use crate::run::{Context, RunArgs, Start};

/// A scenario with its options.
pub trait Benchmark {
    /// Returns the file for the record, if one was named.
    fn json(&self) -> Option<&Path>;

    /// Measures it.
    ///
    /// # Errors
    ///
    /// [`BenchError`](crate::BenchError) if it cannot measure, verify or count.
    fn measure(&self, context: &Context<'_>) -> Result<Record>;
}

/// A scenario with its specific options.
pub trait Measure {
    /// Measures it.
    ///
    /// # Errors
    ///
    /// Those of [`Benchmark::measure`].
    fn measure(&self, start: Start<'_>) -> Result<Record>;
}

/// The options of a scenario, and those that all scenarios have.
#[derive(Debug, Args)]
pub struct Run<S: Args> {
    #[command(flatten)]
    scenario: S,

    #[command(flatten)]
    run: RunArgs,
}

impl<S: Args + Measure> Benchmark for Run<S> {
    fn json(&self) -> Option<&Path> {
        self.run.json.as_deref()
    }

    fn measure(&self, context: &Context<'_>) -> Result<Record> {
        self.scenario.measure(Start { context, run: &self.run })
    }
}

/// The parts that scenarios with mechanisms and steps have in common.
#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// Measure these mechanisms, without fallbacks; all for those of the scenario
    #[arg(long, value_name = "LIST", default_value = "all", value_delimiter = ',',
        value_parser = mechanisms())]
    pub(crate) mechanism: Vec<Option<Contender>>,

    /// Ask for this many bytes in one system call; whole for the whole file, default for the
    /// mechanism's own step
    #[arg(long, value_name = "LIST", default_value = "4K,64K,1M,whole", value_delimiter = ',')]
    pub(crate) step: Vec<Step>,

    /// Drop the source from the page cache before each sample
    #[arg(long)]
    pub(crate) cold: bool,

    /// Create the target in DIR instead of --dir
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
}

/// Parses the name of a mechanism; none is `all`.
pub(crate) fn mechanisms() -> impl TypedValueParser<Value = Option<Contender>> {
    let names = ["all", "auto"].into_iter().chain(Mechanism::ALL.map(Mechanism::name));
    PossibleValuesParser::new(names).map(|name| name.parse().ok())
}

/// The options of scenarios whose contenders leave the settings of the system alone.
#[derive(Clone, Debug, Args)]
pub(crate) struct SystemArgs {
    /// Set the congestion control of the system for the run; auto keeps the system's own, unless it
    /// paces
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) congestion: String,

    /// Do not count system calls in a separate pass
    #[arg(long)]
    pub(crate) no_count: bool,
}

/// The parts that the scenarios with servers have in common.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Measure these servers; those that are not installed are left out
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = among(SERVERS))]
    #[arg(default_value = "nginx,underpass")]
    pub(crate) server: Vec<Contender>,

    /// Measure for this many seconds in each sample
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    pub(crate) seconds: f64,

    /// Have all servers write access logs
    #[arg(long)]
    pub(crate) log: bool,

    #[command(flatten)]
    pub(crate) system: SystemArgs,
}

const SERVERS: &[Named] = &[
    (
        "bare-loop",
        Contender::BareLoop,
        "The fewest calls: epoll, recv, fstat, then pread and send, or sendfile",
    ),
    ("dufs", Contender::Dufs, "A server in Rust that answers with hyper"),
    ("h2o", Contender::H2o, "h2o"),
    ("lighttpd", Contender::Lighttpd, "lighttpd"),
    ("miniserve", Contender::Miniserve, "A server in Rust that answers with actix"),
    ("nginx", Contender::Nginx, "nginx"),
    ("underpass", Contender::Underpass, "`underpass serve`"),
];

/// A contender as it is typed, and what it is.
pub(crate) type Named = (&'static str, Contender, &'static str);

/// Parses the name of one of these contenders.
pub(crate) fn among(named: &'static [Named]) -> impl TypedValueParser<Value = Contender> {
    let values = named.iter().map(|(name, _, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(values).map(|typed| {
        let found = named.iter().find(|(name, ..)| *name == typed);
        found.map_or(Contender::Underpass, |(_, contender, _)| *contender)
    })
}

/// Parses a number of rounds, responses or connections.
pub(crate) fn number(min: i64) -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(min..=10_000_000)
}

/// Parses the size of a file that is not empty.
pub(crate) fn bytes(text: &str) -> std::result::Result<u64, String> {
    match text.parse() {
        Ok(Size(0)) => Err("a file of 0 bytes cannot be measured".to_owned()),
        Ok(Size(bytes)) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns a parser of sizes of at least `min` bytes.
pub(crate) fn bytes_from(
    min: u64,
) -> impl Fn(&str) -> std::result::Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| match bytes(text)? {
        bytes if bytes < min => Err(format!("at least {} are needed", short_size(min))),
        bytes => Ok(bytes),
    }
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a sample takes 0.01 to 3600 seconds".to_owned()),
    }
}
