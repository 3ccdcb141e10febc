//! underpass: moves files without letting their bytes climb into user space.
//!
//! This crate parses arguments, calls the engine and prints; nothing here moves a byte.

#![forbid(unsafe_code)]

mod address;
mod args;
mod bench;
mod commands;
mod congestion;
mod ends;
mod failure;
mod holes;
mod output;
mod progress;
mod range;
mod receipt;
mod signals;
mod size;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    let outcome = match cli.command {
        Command::Send(args) => commands::send::run(&args),
        Command::Recv(args) => commands::recv::run(&args),
        Command::Cp(args) => commands::cp::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => output::failure(&failure),
    }
}
