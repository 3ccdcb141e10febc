//! underpass: moves files without copying their bytes to user space.
//!
//! This crate parses arguments, calls the other crates and prints; the engine moves the bytes.

#![forbid(unsafe_code)]

mod args;
mod clap_message;
mod cli;
mod commands;
mod connection;
mod failure;
mod foreign_options;
mod open_files;
mod output;
mod receipt;
mod signals;

use std::process::ExitCode;

use clap::CommandFactory;

use cli::{Cli, Command, Deferred};
use failure::{Failure, Result};

fn main() -> ExitCode {
    signals::outlive_file_limit();
    let done = match Cli::parse_words(&std::env::args_os().collect::<Vec<_>>()).and_then(run) {
        // A finding must have been printed; otherwise that failure is returned.
        Err(found) if found.exit_code() == Failure::FOUND => output::all_printed().and(Err(found)),
        Err(failure) => Err(failure),
        Ok(code) => output::all_printed().map(|()| code),
    };
    done.unwrap_or_else(|failure| output::failure(&failure))
}

fn run(cli: Cli) -> Result<ExitCode> {
    let done = match cli.command {
        Some(Command::Serve(Deferred(args))) => match args.generate().generate(Cli::command())? {
            true => Ok(()),
            false => commands::serve::run(&args),
        },
        Some(Command::Share(Deferred(args))) => commands::serve::share::run(&args),
        Some(Command::Get(Deferred(args))) => commands::get::run(&args),
        Some(Command::Put(Deferred(args))) => commands::put::run(&args),
        Some(Command::Send(Deferred(args))) => commands::send::run(&args),
        Some(Command::Recv(Deferred(args))) => commands::recv::run(&args),
        Some(Command::Cp(Deferred(args))) => commands::cp::run(&args),
        Some(Command::Fill(Deferred(args))) => commands::fill::run(&args),
        #[cfg(feature = "bench")]
        Some(Command::Bench(Deferred(args))) => commands::bench::run(&args),
        Some(Command::Doctor(Deferred(args))) => commands::doctor::run(&args),
        #[cfg(feature = "explain")]
        // The exit code is that of the traced program.
        Some(Command::Explain(Deferred(args))) => return commands::explain::run(&args),
        None => commands::manual::completions::run(&cli.generate, Cli::command()),
    };
    done.map(|()| ExitCode::SUCCESS)
}
