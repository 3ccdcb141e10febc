//! Examines an origin, and the disk of a cache in front of it.

use std::time::Duration;

use underpass_client::s3::Store;
use underpass_client::{Credentials, HttpClient, TlsSetup, input};
use underpass_diagnose::doctor::{self, Finding};
use underpass_transport::tls::Trust;

use super::args::DoctorArgs;
use crate::failure::{Failure, Result};

/// Examines the origin of a URL, and the folder of a cache if there is one.
pub(super) fn examine(args: &DoctorArgs, text: &str) -> Result<Vec<Finding>> {
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

/// The time after which an origin is given up.
const TIMEOUT: Duration = Duration::from_secs(15);
