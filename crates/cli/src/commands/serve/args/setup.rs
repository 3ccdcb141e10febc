//! The options of the log and of the process.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use underpass_server::access_log::LogFormat;

use crate::commands::manual::completions::GenerateArgs;

/// Logging.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LoggingArgs {
    /// Format of the access log: combined, vhost_combined, json, or a text with $variables
    #[arg(long, value_name = "FORMAT", default_value = "combined",
        value_parser = LogFormat::parse)]
    pub(crate) log_format: LogFormat,

    /// Append the access log to this file, reopened on SIGHUP; - is standard output [default: -]
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,

    /// Print no access log, and only the addresses at the start; --log-file is still written
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Configuration.
#[derive(Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct SetupArgs {
    /// Read options that are not given on the command line from this TOML file, such as port =
    /// 8080. Its tables named site are sites with names of their own; SIGHUP reloads it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Switch to this user once the sockets are open: a name or a number, optionally with :GROUP;
    /// for servers started by root
    // A text, because the databases of users are out of reach when it is parsed again on SIGHUP.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) user: Option<String>,

    /// Disable the sandbox: no Landlock, no seccomp, capabilities are kept
    #[arg(long)]
    pub(crate) no_sandbox: bool,

    #[command(flatten)]
    pub(crate) generate: GenerateArgs,
}
