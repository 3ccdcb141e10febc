//! `underpass --completions SHELL`, `underpass --print-manpage`: what shells and man want to know.

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::args::Cli;
use crate::failure::Result;
use crate::generate::GenerateArgs;
use crate::output;

/// Prints what was asked for; without that there should have been a command.
pub(crate) fn run(args: &GenerateArgs) -> Result<()> {
    let Some(text) = args.text() else {
        let message = "a subcommand is missing: serve, get, put, send, recv, cp, bench or doctor";
        return Err(Cli::command().error(ErrorKind::MissingSubcommand, message).into());
    };
    output::bytes(&text);
    Ok(())
}
