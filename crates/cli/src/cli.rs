//! The command line as a whole: the commands, and the texts that the program prints about itself.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

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
    Serve(Deferred<ServeArgs>),
    /// Share a file or folder at a URL that expires after a download or a set time
    Share(Deferred<ShareArgs>),
    /// Fetch files from an HTTP server
    Get(Deferred<GetArgs>),
    /// Upload files to an HTTP server
    Put(Deferred<PutArgs>),
    /// Send a file or standard input over one plain TCP or Unix stream
    Send(Deferred<SendArgs>),
    /// Receive one plain TCP or Unix stream into a file
    Recv(Deferred<RecvArgs>),
    /// Copy files and folders within this machine
    Cp(Deferred<CpArgs>),
    /// Prefetch the files on a list into a cache node
    Fill(Deferred<FillArgs>),
    /// Measure transfers of this and other programs on this machine
    #[cfg(feature = "bench")]
    Bench(Deferred<BenchArgs>),
    /// Report which mechanisms work on this machine, and how to enable the others
    Doctor(Deferred<DoctorArgs>),
    /// Run any program and report how its bytes move
    #[cfg(feature = "explain")]
    Explain(Deferred<ExplainArgs>),
}

impl Cli {
    /// Parses the command line; for a server also the options of the environment and of a file.
    pub(crate) fn parse_words(words: &[OsString]) -> Result<Self, Failure> {
        let command = with_negative_numbers(Self::command());
        // `help --help` is `help`.
        let is_help = words.get(1).is_some_and(|word| word == "help");
        let words = words.iter().filter(|word| !is_help || (*word != "--help" && *word != "-h"));
        let words: Vec<_> = words.cloned().collect();
        let words = words.as_slice();
        let mut cli = Self::from_arg_matches(&command.try_get_matches_from(words)?)?;
        match &mut cli.command {
            Some(Command::Serve(args)) => {
                serve::warn_of_variables();
                *args.0 = serve::merge_sources(words, serve::Reading::First)?;
            }
            Some(Command::Get(_) | Command::Put(_) | Command::Fill(_)) => {
                serve::warn_of_variables_of_requests();
            }
            _ => {}
        }
        Ok(cli)
    }
}

/// The options of one command, which are built only when it is used: building those of all
/// commands takes longer than the copy of a small file.
#[derive(Debug)]
pub(crate) struct Deferred<T>(pub(crate) Box<T>);

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.defer(|command| {
            // The text is that of the command, not of the type of its options.
            let about = command.get_about().cloned();
            let command = with_negative_numbers(T::augment_args(command));
            command.about(about.unwrap_or_default()).long_about(None::<&str>)
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Box::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        Box::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Lets options take negative numbers, so that the message about one is that of its option.
pub(crate) fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_value = |arg: &Arg| arg.get_action().takes_values() && !arg.is_positional();
    command
        .mut_args(|arg| if takes_value(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}
