//! Examines an origin, and the disk of a cache in front of it.

use std::time::Duration;

use underpass_client::s3::{Location, Store};
use underpass_client::{Credentials, HttpClient, TlsSetup, Url};
use underpass_diagnose::doctor::{self, Finding};
use underpass_transport::tls::Trust;

use super::args::DoctorArgs;
use crate::failure::{Failure, Result};

/// Examines the origin of a URL, and the folder of a cache if there is one.
pub(super) fn examine(args: &DoctorArgs, text: &str) -> Result<Vec<Finding>> {
    let wrong = |why: String| Failure::value("--origin", why);
    Location::check(text).map_err(|bad| wrong(bad.to_string()))?;
    let url =
        Url::parse(text).map_err(|error| wrong(format!("{error}: write https://HOST/FILE")))?;
    if !matches!(url.scheme(), "http" | "https" | "s3") {
        return Err(wrong(format!("the scheme {} is not supported", url.scheme())));
    }
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
