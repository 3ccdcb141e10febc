//! `underpass get`: what other servers have, into files.

use std::path::PathBuf;

use clap::Args;
use underpass_http::client::Url;

use crate::agent::{AgentArgs, address};
use crate::args::{EngineArgs, ShowArgs};
use crate::failure::{Failure, Result};
use crate::get;
use crate::signals;
use crate::size::Size;

/// What can be typed after `get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// What to fetch; without http:// it is added
    #[arg(value_name = "URL", required = true, value_parser = address)]
    pub(crate) urls: Vec<Url>,

    /// The file to write, - for standard output [default: the last part of the URL, here]
    #[arg(short, long, value_name = "FILE", conflicts_with = "dir")]
    pub(crate) output: Option<PathBuf>,

    /// The folder to put the files in
    #[arg(short, long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Fetch whole folders: from our own servers as one archive, from others by their listings
    #[arg(short, long, conflicts_with = "output")]
    pub(crate) recursive: bool,

    /// Replace a file that exists
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Use so many connections at the most [default: by size; 1 for servers on this machine]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) connections: Option<u32>,

    /// Take so many bytes a second at the most, such as 10M
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<Size>,

    /// Let the file have the time of its arrival, not that of its last change on the server
    #[arg(long)]
    pub(crate) no_mtime: bool,

    /// Have the file on the disk before it gets its name
    #[arg(long)]
    pub(crate) sync: bool,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

/// Fetches.
pub(crate) fn run(args: &GetArgs) -> Result<()> {
    if args.output.is_some() && args.urls.len() > 1 {
        let message = "-o FILE is one file for one URL: use -d DIR for several";
        return Err(Failure::Usage(message.to_owned()));
    }
    let cancel = signals::cancel_flag();
    args.urls.iter().try_for_each(|url| match args.recursive {
        true => get::tree::fetch(args, url, &cancel),
        false => get::one(args, url, &cancel),
    })
}

/// A rate that lets something through.
fn rate(text: &str) -> std::result::Result<Size, String> {
    match text.parse() {
        Ok(Size(0)) => Err("a rate is at least one byte a second".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}
