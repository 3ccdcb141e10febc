//! What the program can print about itself for shells and for man.

use std::io;

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;

/// What is to be printed instead of doing anything.
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
    /// The text that was asked for, if one was.
    pub(crate) fn text(&self) -> Option<Vec<u8>> {
        let mut program = Cli::command();
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

/// The page of a command, and those of its commands behind it.
fn pages(command: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    Man::new(command.clone()).render(text)?;
    let shown = |each: &&Command| !each.is_hide_set() && each.get_name() != "help";
    command.get_subcommands().filter(shown).try_for_each(|each| pages(each, text))
}
