//! `underpass explain`: which way the bytes of any program take.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use underpass_engine::hint::{Action, Hinted};

use crate::explain;
use crate::failure::{Failure, Result, WithPath};
use crate::figure::Alphabet;
use crate::output;

/// What can be typed after `explain`.
#[derive(Debug, Args)]
#[command(override_usage = "underpass explain [OPTIONS] -- <COMMAND>...")]
pub(crate) struct ExplainArgs {
    /// The program and its arguments; everything that it starts is watched, too
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    command: Vec<OsString>,

    /// Write the receipt as one JSON object
    #[arg(long)]
    json: bool,

    /// Write the receipt to this file instead of standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Watch every system call, not only those that move bytes: slower, but tells how many there
    /// were
    #[arg(long)]
    every_call: bool,
}

/// Runs a program and tells; ends as the program did.
pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode> {
    // Before the program begins, so that nothing is lost.
    let output = args.output.as_ref();
    let file =
        output.map(|path| File::create(path).with_path(Action::Creating, path)).transpose()?;
    let explained = explain::run(&args.command, args.every_call).map_err(|error| {
        let exit_code = error.exit_code();
        Failure::Failed { line: error.to_string(), hint: error.hint(), exit_code }
    })?;
    let text = match args.json {
        true => output::json(&explained.receipt),
        false => explain::text(&explained.receipt, Alphabet::of_locale()),
    };
    match (file, output) {
        (Some(mut file), Some(path)) => {
            writeln!(file, "{text}").with_path(Action::Writing, path)?
        }
        _ => output::told(&text),
    }
    Ok(ExitCode::from(explained.exit_code))
}
