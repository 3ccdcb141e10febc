//! `underpass put`: files, folders and standard input, to an HTTP server.

use std::ffi::OsString;

use clap::Args;
use underpass_engine::Integrity;
use underpass_server::digest::Algorithm;

use crate::agent::AgentArgs;
use crate::args::{EngineArgs, ShowArgs, rate};
use crate::failure::Result;
use crate::put;
use crate::signals;
use underpass_engine::Size;

/// What can be typed after `put`.
#[derive(Debug, Args)]
#[command(override_usage = "underpass put [OPTIONS] <FILE>... <URL>")]
pub(crate) struct PutArgs {
    /// What to send, - for standard input; and last where to: a folder if it ends in /, otherwise
    /// the file's own new address; without http:// it is added
    #[arg(value_name = "FILE... URL", num_args = 1.., required = true)]
    pub(crate) words: Vec<OsString>,

    /// Send folders, with everything in them
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Send what links in a folder lead to, instead of leaving them out
    #[arg(short = 'L', long, requires = "recursive")]
    pub(crate) follow_links: bool,

    /// Replace nothing: send only what is not there yet
    #[arg(short, long, visible_alias = "if-none-match", conflicts_with = "if_match")]
    pub(crate) no_clobber: bool,

    /// Replace only the version that has this entity tag, such as '"5f3-1a"'
    #[arg(long, value_name = "ETAG", value_parser = put::entity_tag)]
    pub(crate) if_match: Option<String>,

    /// Have the server check what it got: read each file first, and send its digest along (sha-256
    /// or sha-512)
    #[arg(long, value_name = "ALGORITHM")]
    pub(crate) digest: Option<Algorithm>,

    /// Begin anew even if an earlier upload could be gone on with, and keep nothing for a later
    /// one
    #[arg(long)]
    pub(crate) no_resume: bool,

    /// Send so many bytes a second at the most, such as 10M
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<Size>,

    /// How sure to be that the bytes are of one version of the file: fast (trust), detect (fail
    /// if it changed), lease (make writers wait) or snapshot (send a clone)
    #[arg(long, value_name = "LEVEL", default_value = "detect")]
    pub(crate) integrity: Integrity,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

/// Uploads.
pub(crate) fn run(args: &PutArgs) -> Result<()> {
    let cancel = signals::cancel_flag();
    put::run(args, &cancel)
}
