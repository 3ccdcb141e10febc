//! underpass: moves files without letting their bytes climb into user space.
//!
//! This crate parses arguments, calls the engine and prints; nothing here moves a byte.

#![forbid(unsafe_code)]

mod address;
mod agent;
mod args;
mod bench;
mod commands;
mod congestion;
mod cp;
mod doctor;
mod ends;
mod explain;
mod explained;
mod failure;
mod figure;
mod generate;
mod get;
mod netrc;
mod output;
mod printable;
mod progress;
mod put;
mod range;
mod receipt;
mod serve;
mod signals;
mod trust;
mod veil;

use std::process::ExitCode;

use args::{Cli, Command};
use failure::Result;

fn main() -> ExitCode {
    match Cli::understand(std::env::args_os().collect()).and_then(run) {
        Ok(code) => code,
        Err(failure) => output::failure(&failure),
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    let done = match cli.command {
        Some(Command::Serve(args)) => commands::serve::run(&args),
        Some(Command::Get(args)) => commands::get::run(&args),
        Some(Command::Put(args)) => commands::put::run(&args),
        Some(Command::Send(args)) => commands::send::run(&args),
        Some(Command::Recv(args)) => commands::recv::run(&args),
        Some(Command::Cp(args)) => cp::run(&args),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        // It ends as the program that it runs.
        Some(Command::Explain(args)) => return explain::run(&args),
        None => commands::generate::run(&cli.generate),
    };
    done.map(|()| ExitCode::SUCCESS)
}
