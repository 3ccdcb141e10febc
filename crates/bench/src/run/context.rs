//! The inputs of a run from the program.

use std::fmt::Debug;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;

use crate::error::{BenchError, Result};

/// The facts about the program that starts a run.
#[derive(Debug)]
pub struct Context<'a> {
    /// The file of `underpass`, which is started as the processes that are measured.
    pub program: PathBuf,
    /// Set when the run is to end, as by a signal.
    pub cancel: &'a AtomicBool,
    /// Receives the progress of the run.
    pub observer: &'a dyn RunObserver,
}

/// The parts that all scenarios have in common.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Run N rounds; each measures every contender once at each size
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) runs: u32,

    /// Run N warm-up rounds first, which are not counted
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    pub(crate) warmup: u32,

    /// Create the files in a new folder in DIR, which is removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,

    /// Write the record, with all samples and the environment, to FILE; - for standard output
    /// instead of the table
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// The inputs of a scenario: those from the program, and the options that all have.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) run: &'a RunArgs,
}

/// Receives the progress of a run. It is called between samples, so that it does not disturb them.
pub trait RunObserver: Debug + Sync {
    /// Begins a run with `total` units of work.
    fn begin(&self, total: u64);

    /// Names what is measured next.
    fn measuring(&self, what: &str);

    /// Receives the number of further units of work that are done.
    fn advance(&self, done: u64);

    /// Ends the run.
    fn end(&self);
}

impl Context<'_> {
    pub(crate) fn program(&self) -> Command {
        Command::new(&self.program)
    }

    pub(crate) fn interrupted(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }
}
