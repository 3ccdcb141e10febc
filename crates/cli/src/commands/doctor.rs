//! `underpass doctor`: what this machine allows, and what to do about what it does not.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::doctor;
use crate::failure::{Failure, Result};
use crate::output;

/// What can be typed after `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// What would be copied or sent: a file, or a folder of such files [default: this folder]
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,

    /// Where to: the new file or its folder, - for standard output, a host, or unix:PATH
    /// [default: any host]
    #[arg(long, value_name = "PATH | HOST[:PORT]")]
    to: Option<OsString>,

    /// Print the findings as one JSON object
    #[arg(long)]
    json: bool,
}

/// Tries everything, and tells what came of it.
pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let diagnosis = doctor::examine(args.from.as_deref(), args.to.as_deref())?;
    output::diagnosis(&diagnosis, args.json);
    match diagnosis.closed() {
        0 => Ok(()),
        1 => {
            Err(Failure::finding("the fastest mechanism is unavailable; using another".to_owned()))
        }
        count => Err(Failure::finding(format!(
            "{count} fastest mechanisms are unavailable; using others"
        ))),
    }
}
