//! The arguments of `explain`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// The arguments of `explain`.
#[derive(Debug, Args)]
#[command(override_usage = "underpass explain [OPTIONS] -- <COMMAND>...")]
pub(crate) struct ExplainArgs {
    /// The program and its arguments; the processes that it starts are traced, too
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,

    /// Write the receipt as one JSON object
    #[arg(long)]
    pub(super) json: bool,

    /// Write the receipt to this file instead of standard error
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Stop at every system call, not only those that move bytes: slower, but counts all calls by
    /// name
    #[arg(long)]
    pub(super) every_call: bool,
}
