//! `underpass doctor`: what this machine allows, and what to do about what it does not.

use clap::Args;

use crate::doctor::{self, Diagnosis};
use crate::failure::{Failure, Result};
use crate::output;

/// What can be typed after `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print the findings as one JSON object
    #[arg(long)]
    json: bool,
}

/// Tries everything, and tells what came of it.
pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let diagnosis = Diagnosis::new(doctor::ktls::findings(&doctor::ktls::Facts::gather()));
    output::diagnosis(&diagnosis, args.json);
    match diagnosis.closed() {
        0 => Ok(()),
        ways => Err(Failure::Closed { ways }),
    }
}
