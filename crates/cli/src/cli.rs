//! The command line as a whole: the commands, and the texts that the program prints about itself.

use std::ffi::OsString;

use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};

#[cfg(feature = "bench")]
use crate::commands::bench::BenchArgs;
use crate::commands::cp::CpArgs;
use crate::commands::doctor::DoctorArgs;
#[cfg(feature = "explain")]
use crate::commands::explain::ExplainArgs;
use crate::commands::fill::FillArgs;
use crate::commands::get::GetArgs;
use crate::commands::manual::completions::GenerateArgs;
use crate::commands::put::PutArgs;
use crate::commands::recv::RecvArgs;
use crate::commands::send::SendArgs;
use crate::commands::serve::share::ShareArgs;
use crate::commands::serve::{self, ServeArgs};
use crate::failure::Failure;

/// Moves files without copying their bytes through user space.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, arg_required_else_help = true)]
// Of an option that is repeated the last one counts, in every command: aliases have some already.
#[command(args_override_self = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) generate: GenerateArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a folder or a file over HTTP or HTTPS
    Serve(Box<ServeArgs>),
    /// Share a file or folder at a URL that expires after a download or a set time
    Share(ShareArgs),
    /// Fetch files from an HTTP server
    Get(Box<GetArgs>),
    /// Upload files to an HTTP server
    Put(Box<PutArgs>),
    /// Send a file or standard input over one plain TCP or unix stream
    Send(SendArgs),
    /// Receive one plain TCP or unix stream into a file
    Recv(RecvArgs),
    /// Copy files and folders within this machine
    Cp(Box<CpArgs>),
    /// Prefetch the files on a list into a cache node
    Fill(Box<FillArgs>),
    /// Measure transfers of this and other programs on this machine
    #[cfg(feature = "bench")]
    Bench(BenchArgs),
    /// Report which mechanisms work on this machine, and how to enable the others
    Doctor(DoctorArgs),
    /// Run any program and report how its bytes move
    #[cfg(feature = "explain")]
    Explain(ExplainArgs),
}

impl Cli {
    /// Parses the command line; for a server also the options of the environment and of a file.
    pub(crate) fn understand(words: &[OsString]) -> Result<Self, Failure> {
        let command = with_negative_numbers(Self::command());
        let mut cli = Self::from_arg_matches(&command.try_get_matches_from(words)?)?;
        match &mut cli.command {
            Some(Command::Serve(args)) => {
                serve::warn_of_variables();
                **args = serve::merge_sources(words)?;
            }
            Some(Command::Get(_) | Command::Put(_) | Command::Fill(_)) => {
                serve::warn_of_variables_of_requests();
            }
            _ => {}
        }
        Ok(cli)
    }
}

/// Lets options take negative numbers, so that the message about one is that of its option.
pub(crate) fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_value = |arg: &Arg| arg.get_action().takes_values() && !arg.is_positional();
    command
        .mut_args(|arg| if takes_value(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}
