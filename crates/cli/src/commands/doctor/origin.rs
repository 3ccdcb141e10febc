//! Examines an origin, and the disk of a cache in front of it.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::BinaryBytes;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use underpass_client::s3::{Location, Store};
use underpass_client::{Credentials, HttpClient, TlsSetup, Url};
use underpass_diagnose::doctor::{Finding, FindingState};
use underpass_transport::tls::Trust;

use super::args::DoctorArgs;
use super::contact::{Contact, of_file, unreachable};
use super::store;
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
    let mut findings = match &store {
        Some(store) => store::examine(&client, store),
        None => of_origin(&client, &url),
    };
    if let Some(folder) = &args.cache {
        findings.push(of_disk(folder));
    }
    Ok(findings)
}

fn of_origin(client: &HttpClient<'_>, url: &Url) -> Vec<Finding> {
    let first = match Contact::new(client, url) {
        Ok(first) => first,
        Err(error) => return vec![unreachable(&error)],
    };
    of_file(client, url, &first)
}

/// Examines the disk of a cache's folder, or of the folder above it.
fn of_disk(folder: &Path) -> Finding {
    let name = "cache-disk";
    match measure(folder) {
        Ok((rate, free, has_holes)) => {
            let (rate, free) = (BinaryBytes(rate), BinaryBytes(free));
            let state = if has_holes { FindingState::Best } else { FindingState::Limited };
            let holes = if has_holes { "holes" } else { "no holes" };
            Finding {
                name,
                state,
                finding: format!("{rate}/s written and synced, {free} free, {holes}"),
                consequence: "fills are no faster than this; reading hits needs the page cache or \
                              the same"
                    .to_owned(),
                remedy: None,
            }
        }
        Err(error) => Finding {
            name,
            state: FindingState::Closed,
            finding: format!("{}: {error}", folder.display()),
            consequence: "nothing can be kept there".to_owned(),
            remedy: Some("give a folder that this user may write to".to_owned()),
        },
    }
}

/// Returns how many bytes a second a new file in a folder takes, how many are free, and whether
/// files can have holes. No file is left over.
fn measure(folder: &Path) -> io::Result<(u64, u64, bool)> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let place = if folder.exists() { folder } else { folder.parent().unwrap_or(folder) };
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = File::from(openat(CWD, place, flags, Mode::RUSR | Mode::WUSR)?);
    let block = vec![0x5a; 1 << 20];
    let begun = Instant::now();
    let mut written = 0;
    while written < TRIAL && begun.elapsed() < TRIAL_TIME {
        file.write_all(&block)?;
        written += block.len() as u64;
    }
    file.sync_data()?;
    let rate = written as f64 / begun.elapsed().as_secs_f64().max(0.001);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let has_holes = fallocate(&file, flags, 0, 1 << 20).is_ok();
    let found = fstatvfs(&file)?;
    Ok((rate as u64, found.f_bavail * found.f_frsize, has_holes))
}

/// The time after which an origin is given up.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The bytes that are written to measure a disk.
const TRIAL: u64 = 256 << 20;

/// The longest time for that, without the end.
const TRIAL_TIME: Duration = Duration::from_secs(5);
