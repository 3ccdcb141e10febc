//! Examines two ends, or an origin, and prints the findings.

use std::time::Duration;

use underpass_client::s3::Store;
use underpass_client::{Credentials, HttpClient, TlsSetup, input};
use underpass_diagnose::doctor::{self, Finding, FindingState};
use underpass_transport::tls::Trust;

use super::args::DoctorArgs;
use super::print;
use crate::connection::StoreArgs;
use crate::failure::{Failure, Result};
use crate::output;

/// Runs all trials and prints the findings; fails if one of them is marked closed.
pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    if let Some(url) = &args.origin {
        let findings = examine_origin(args, url)?;
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

/// Examines the origin of a URL, and the folder of a cache if there is one.
fn examine_origin(args: &DoctorArgs, text: &str) -> Result<Vec<Finding>> {
    let url = input::origin(text).map_err(|why| Failure::value("--origin", why))?;
    let trust = Trust { authorities: args.origin_cacert.clone(), ..Trust::default() };
    let tls = TlsSetup::new(trust);
    let store = args.store.open(&url, &tls)?;
    let client = HttpClient {
        tls,
        credentials: store.as_ref().map_or(Credentials::None, Store::credentials),
        connect_timeout: TIMEOUT,
        timeout: TIMEOUT,
        ..HttpClient::default()
    };
    let mut findings = doctor::examine_origin(&client, &url, store.as_ref());
    findings.extend(args.cache.as_deref().map(doctor::examine_disk));
    Ok(findings)
}

/// The time after which an origin counts as unreachable.
const TIMEOUT: Duration = Duration::from_secs(15);

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
