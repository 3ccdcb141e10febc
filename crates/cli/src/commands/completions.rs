//! `underpass --completions SHELL`, `underpass --print-manpage`: what shells and man need to know.

use std::io;

use clap::error::ErrorKind;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::failure::Result;
use crate::output;

/// What to print instead of running a command.
#[derive(Debug, Args)]
#[command(next_help_heading = "About this program")]
pub(crate) struct GenerateArgs {
    /// Print the completions of all commands for this shell
    #[arg(long, value_name = "SHELL", value_enum)]
    completions: Option<Shell>,

    /// Print the manual pages of all commands: man -l -
    #[arg(long, conflicts_with = "completions")]
    print_manpage: bool,
}

impl GenerateArgs {
    /// Returns the text that was requested about this program, if one was.
    pub(crate) fn text(&self, mut program: Command) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        if let Some(shell) = self.completions {
            clap_complete::generate(shell, &mut program, "underpass", &mut text);
        } else if self.print_manpage {
            program.build();
            pages(&program, &mut text).expect("a vector takes everything");
        } else {
            return None;
        }
        Some(text)
    }
}

/// Prints what was requested; without a request, a command is missing.
pub(crate) fn run(args: &GenerateArgs, mut program: Command) -> Result<()> {
    let Some(text) = args.text(program.clone()) else {
        let message = "a subcommand is missing: serve, get, put, send, recv, cp, bench or doctor";
        return Err(program.error(ErrorKind::MissingSubcommand, message).into());
    };
    output::bytes(&text);
    Ok(())
}

/// The page of a command, and those of its commands behind it.
fn pages(command: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    Man::new(command.clone()).render(text)?;
    let shown = |each: &&Command| !each.is_hide_set() && each.get_name() != "help";
    command.get_subcommands().filter(shown).try_for_each(|each| pages(each, text))
}
