//! Traces a program and prints how its bytes moved.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use underpass_diagnose::explain;
use underpass_engine::hint::{Action, Hinted};

use super::print;
use crate::failure::{Failure, Result, WithPath};
use crate::output;
use crate::receipt::Alphabet;

/// The arguments of `explain`.
#[derive(Debug, Args)]
#[command(override_usage = "underpass explain [OPTIONS] -- <COMMAND>...")]
pub(crate) struct ExplainArgs {
    /// The program and its arguments; the processes that it starts are traced, too
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,

    /// Write the receipt as one JSON object
    #[arg(long)]
    json: bool,

    /// Write the receipt to this file instead of standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Stop at every system call, not only those that move bytes: slower, but counts all calls by
    /// name
    #[arg(long)]
    every_call: bool,
}

/// Traces a program and prints its receipt; returns the program's exit code.
pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode> {
    // Before the program begins, so that nothing is lost.
    let output = args.output.as_ref();
    let open = |path| File::options().write(true).create(true).truncate(false).open(path);
    let file = output.map(|path| open(path).with_path(Action::Creating, path)).transpose()?;
    let receipt = explain::run(&args.command, args.every_call).map_err(|error| {
        let exit_code = error.exit_code();
        Failure::Failed { line: error.to_string(), hint: error.hint(), exit_code }
    })?;
    let text = if args.json {
        output::json(&receipt)
    } else {
        print::text(&receipt, Alphabet::of_locale())
    };
    match (file, output) {
        (Some(mut file), Some(path)) => {
            // An existing receipt stays if the program cannot be started.
            if file.metadata().is_ok_and(|found| found.is_file()) {
                file.set_len(0).with_path(Action::Writing, path)?;
            }
            writeln!(file, "{text}").with_path(Action::Writing, path)?;
        }
        _ => output::receipt_lines(&text),
    }
    Ok(ExitCode::from(receipt.shell_exit_code()))
}
