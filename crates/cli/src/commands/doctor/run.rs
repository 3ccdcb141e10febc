//! Examines two ends and prints the findings.

use underpass_diagnose::doctor::{self, Finding, FindingState};

use super::args::DoctorArgs;
use super::{origin, print};
use crate::connection::StoreArgs;
use crate::failure::{Failure, Result};
use crate::output;

/// Runs all trials and prints the findings; fails if the fastest mechanism is unavailable.
pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    if let Some(url) = &args.origin {
        let findings = origin::examine(args, url)?;
        match args.json {
            true => output::text(&format!("{}\n", print::origin_json(&findings))),
            false => output::text(&print::text(&findings)),
        }
        let is_closed = |finding: &&Finding| finding.state == FindingState::Closed;
        return match findings.iter().filter(is_closed).count() {
            0 => Ok(()),
            count => Err(Failure::finding(format!(
                "{} the cache",
                output::counted(count as u64, "thing hinders", "things hinder")
            ))),
        };
    }
    if args.store != StoreArgs::default() {
        return Err(Failure::value("options of stores", "they need --origin s3://BUCKET/"));
    }
    let diagnosis = doctor::examine(args.from.as_deref(), &args.target()?)?;
    match args.json {
        true => output::text(&format!("{}\n", print::json(&diagnosis))),
        false => output::text(&print::text(&diagnosis.findings)),
    }
    match diagnosis.closed() {
        0 => Ok(()),
        1 => Err(Failure::finding("the fastest mechanism is unavailable; using another")),
        count => Err(Failure::finding(format!(
            "{count} fastest mechanisms are unavailable; using others"
        ))),
    }
}
