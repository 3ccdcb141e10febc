//! `--completions SHELL`, `--print-manpage`, `--write-manpages DIR`: what shells and man need to
//! know.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, Command};
use clap_complete::Shell;

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

    /// Write the manual page of each command into this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["completions", "print_manpage"])]
    write_manpages: Option<PathBuf>,
}

impl GenerateArgs {
    /// Prints or writes what was requested about this program; returns whether anything was.
    pub(crate) fn generate(&self, mut program: Command) -> Result<bool> {
        let mut text = Vec::new();
        if let Some(shell) = self.completions {
            clap_complete::generate(shell, &mut program, "underpass", &mut text);
        } else if self.print_manpage {
            program.build();
            super::print(&program, &mut text).expect("a vector takes everything");
        } else if let Some(folder) = &self.write_manpages {
            program.build();
            super::write(&program, folder)?;
        } else {
            return Ok(false);
        }
        output::bytes(&text);
        Ok(true)
    }
}

/// Generates what was requested; without a request, a command is missing.
pub(crate) fn run(args: &GenerateArgs, mut program: Command) -> Result<()> {
    if args.generate(program.clone())? {
        return Ok(());
    }
    let names: Vec<_> = program.get_subcommands().map(Command::get_name).collect();
    let message = format!("a subcommand is missing: one of {}", names.join(", "));
    Err(program.error(ErrorKind::MissingSubcommand, message).into())
}
