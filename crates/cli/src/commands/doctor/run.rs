//! Examines two ends and prints the findings.

use underpass_diagnose::doctor::{self, Finding, FindingState};

use super::args::DoctorArgs;
use super::{origin, print};
use crate::connection::StoreArgs;
use crate::failure::{Failure, Result};
use crate::output;

/// Runs all trials and prints the findings; fails if one of them is marked closed.
pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    if let Some(url) = &args.origin {
        let findings = origin::examine(args, url)?;
        if args.json {
            output::text(&format!("{}\n", print::origin_json(&findings)))
        } else {
            output::text(&print::text(&findings))
        }
        return verdict(&findings);
    }
    if args.store != StoreArgs::default() {
        return Err(Failure::value("options of stores", "they need --origin s3://BUCKET/"));
    }
    let diagnosis = doctor::examine(args.from.as_deref(), &args.target()?)?;
    if args.json {
        output::text(&format!("{}\n", print::json(&diagnosis)))
    } else {
        output::text(&print::text(&diagnosis.findings))
    }
    verdict(&diagnosis.findings)
}

/// Fails if findings are marked closed, and names them.
fn verdict(findings: &[Finding]) -> Result<()> {
    let closed = findings.iter().filter(|finding| finding.state == FindingState::Closed);
    let names: Vec<_> = closed.map(|finding| finding.name).collect();
    let count = output::counted(names.len() as u64, "finding is", "findings are");
    if names.is_empty() {
        Ok(())
    } else {
        Err(Failure::finding(format!("{count} marked closed: {} (see above)", names.join(", "))))
    }
}
