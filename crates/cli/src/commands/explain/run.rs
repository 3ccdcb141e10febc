//! Traces a program and prints how its bytes moved.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use rustix::io::{FdFlags, fcntl_setfd};
use underpass_copy::ends::{OutputTarget, OverwriteRule, is_dash, open_file_number};
use underpass_diagnose::explain;
use underpass_engine::hint::{Action, Hinted};
use underpass_sys::was_closed;

use super::print;
use crate::failure::{Failure, Result, WithPath};
use crate::output::{self, shared::write_all};
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

    /// Write the receipt to this file instead of standard error; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Stop at every system call, not only those that move bytes: slower, but counts all calls by
    /// name
    #[arg(long)]
    every_call: bool,
}

/// Where the receipt is written.
enum Destination<'a> {
    StandardError,
    /// An open file, to which the program and others may write, too.
    Open(&'a Path),
    File(File, &'a Path),
}

impl<'a> Destination<'a> {
    /// Opens the destination. A file keeps its bytes until the receipt is written.
    fn open(path: Option<&'a Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::StandardError) };
        if is_dash(path) || open_file_number(path).is_some() {
            // Its position is looked up again later. Writing nothing shows whether it can be written.
            let target = target(path)?;
            target.file().write(&[]).with_path(Action::Writing, target.path())?;
            return Ok(Self::Open(path));
        }
        let file = File::options().write(true).create(true).truncate(false).open(path);
        Ok(Self::File(file.with_path(Action::Creating, path)?, path))
    }

    /// Writes the receipt: over a file, or behind what an open file has by now.
    fn write(self, text: &str) -> Result<()> {
        match self {
            Self::StandardError => output::receipt_lines(text),
            Self::Open(path) => {
                let target = target(path)?;
                let text = format!("{text}\n");
                write_all(target.file(), text.as_bytes())
                    .with_path(Action::Writing, target.path())?;
                target.finish(text.len() as u64)?;
            }
            Self::File(file, path) => {
                if file.metadata().is_ok_and(|found| found.is_file()) {
                    file.set_len(0).with_path(Action::Writing, path)?;
                }
                write_all(&file, format!("{text}\n").as_bytes())
                    .with_path(Action::Writing, path)?;
            }
        }
        Ok(())
    }
}

/// Opens what standard output or a path such as `/dev/fd/3` stands for.
fn target(path: &Path) -> Result<OutputTarget> {
    Ok(OutputTarget::create(path, OverwriteRule::Always, &|open| open())?)
}

/// Traces a program and prints its receipt; returns the program's exit code.
pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode> {
    // Before the program begins, so that nothing is lost.
    let destination = Destination::open(args.output.as_deref())?;
    keep_closed(&io::stdin());
    keep_closed(&io::stdout());
    keep_closed(&io::stderr());
    let receipt = explain::run(&args.command, args.every_call).map_err(|error| {
        let exit_code = error.exit_code();
        Failure::Failed { line: error.to_string(), hint: error.hint(), exit_code }
    })?;
    destination.write(&if args.json {
        output::json(&receipt)
    } else {
        print::text(&receipt, Alphabet::of_locale())
    })?;
    Ok(ExitCode::from(receipt.shell_exit_code()))
}

/// Leaves a standard stream closed for the traced program that was closed for this one, in whose
/// place Rust's runtime has opened /dev/null.
fn keep_closed(stream: &impl AsFd) {
    if was_closed(stream) {
        // If this fails, the program finds /dev/null there.
        let _ = fcntl_setfd(stream, FdFlags::CLOEXEC);
    }
}
