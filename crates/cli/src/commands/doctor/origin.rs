//! Examines an origin, and the disk of a cache in front of it.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::BinaryBytes;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use underpass_client::download::interpret::{Version, has_ranges};
use underpass_client::{ClientError, HttpClient, Request, Response, TlsSetup, Url};
use underpass_diagnose::doctor::{Finding, FindingState};
use underpass_transport::tls::{EncryptedBy, Trust};

use super::args::DoctorArgs;
use crate::failure::{Failure, Result};

/// Examines the origin of a URL, and the folder of a cache if there is one.
pub(super) fn examine(args: &DoctorArgs, text: &str) -> Result<Vec<Finding>> {
    let fail = |why: String| Failure::Usage(format!("--origin: {why}"));
    let url =
        Url::parse(text).map_err(|error| fail(format!("{error}: write https://HOST/FILE")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(fail(format!("the scheme {} is not supported", url.scheme())));
    }
    let trust = Trust { authorities: args.origin_cacert.clone(), ..Trust::default() };
    let client = HttpClient {
        tls: TlsSetup::new(trust),
        connect_timeout: TIMEOUT,
        timeout: TIMEOUT,
        ..HttpClient::default()
    };
    let mut findings = of_origin(&client, &url);
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
    let mut findings = vec![first.reachability(), first.encryption(url)];
    if !matches!(first.response.status, 200 | 206) {
        let finding = format!("{} for {}", first.response.status, url.path());
        let consequence = "ranges and versions cannot be examined".to_owned();
        let remedy = Some("name a file of the origin: --origin https://HOST/FILE".to_owned());
        findings.push(Finding {
            name: "file",
            state: FindingState::Closed,
            finding,
            consequence,
            remedy,
        });
        return findings;
    }
    findings.push(first.ranges());
    // Several servers behind one name may not agree about the version.
    let again = Contact::new(client, url).ok().and_then(|again| Version::of(&again.response));
    findings.push(first.version(again.as_ref()));
    findings
}

fn unreachable(error: &ClientError) -> Finding {
    Finding {
        name: "origin",
        state: FindingState::Closed,
        finding: error.to_string(),
        consequence: "the cache serves only what it has".to_owned(),
        remedy: Some("check the address, the network, and --origin-cacert".to_owned()),
    }
}

/// A question for the first byte of a file, and its answer.
struct Contact {
    response: Response,
    connecting: Duration,
    answering: Duration,
    address: String,
    encrypted_by: Option<&'static str>,
}

impl Contact {
    fn new(client: &HttpClient<'_>, url: &Url) -> std::result::Result<Self, ClientError> {
        let request = Request { method: "GET", fields: &[("Range", "bytes=0-0")] };
        let begun = Instant::now();
        let mut connection = client.connect(url)?;
        let connecting = begun.elapsed();
        let asked = Instant::now();
        let response = connection.exchange(client, &request, url, true)?;
        Ok(Self {
            connecting,
            answering: asked.elapsed(),
            address: connection.address().to_owned(),
            encrypted_by: connection.tls().map(|facts| match facts.encrypted_by {
                EncryptedBy::Kernel => "the kernel",
                EncryptedBy::UserSpace(_) => "this program",
            }),
            response,
        })
    }

    fn reachability(&self) -> Finding {
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        let (connecting, answering) = (millis(self.connecting), millis(self.answering));
        Finding {
            name: "origin",
            state: FindingState::Best,
            finding: format!(
                "{} connects in {connecting:.1} ms and answers in {answering:.1} ms",
                self.address
            ),
            consequence: "that is how much later than a hit the first byte of a miss goes out"
                .to_owned(),
            remedy: None,
        }
    }

    fn encryption(&self, url: &Url) -> Finding {
        let (state, finding, consequence) = match self.encrypted_by {
            None => (
                FindingState::Unneeded,
                format!("{} is not encrypted", url.scheme()),
                "any machine on the way can read and change what is cached",
            ),
            Some("the kernel") => (
                FindingState::Best,
                "the certificate is good, and the kernel decrypts".to_owned(),
                "fills are spliced to the disk",
            ),
            Some(by) => (
                FindingState::Closed,
                format!("the certificate is good, and {by} decrypts"),
                "the bytes of fills pass through user space",
            ),
        };
        let remedy = (state == FindingState::Closed).then(|| "modprobe tls".to_owned());
        Finding { name: "origin-tls", state, finding, consequence: consequence.to_owned(), remedy }
    }

    fn ranges(&self) -> Finding {
        let range = self.response.fields.text("content-range").unwrap_or_default();
        let is_heeded = self.response.status == 206 && range.starts_with("bytes 0-0/");
        let (state, finding, consequence) = match is_heeded {
            true => (FindingState::Best, "ranges are answered", "any part is fetched at once"),
            false if has_ranges(&self.response) => (
                FindingState::Limited,
                "ranges are announced, and not answered",
                "files are fetched whole, from their start",
            ),
            false => (
                FindingState::Limited,
                "ranges are not answered",
                "files are fetched whole, from their start",
            ),
        };
        let (finding, consequence) = (finding.to_owned(), consequence.to_owned());
        Finding { name: "ranges", state, finding, consequence, remedy: None }
    }

    fn version(&self, again: Option<&Version>) -> Finding {
        let version = Version::of(&self.response);
        let tag = self.response.fields.text("etag").unwrap_or_default();
        let (state, finding, consequence) = match &version {
            None => (
                FindingState::Closed,
                "no strong ETag, and no Last-Modified that is older than the response".to_owned(),
                "interrupted fills begin anew, and parts are not kept",
            ),
            Some(_) if again != version.as_ref() => (
                FindingState::Closed,
                "two requests in a row got two versions".to_owned(),
                "downloads are reset whenever the version changes",
            ),
            Some(version) if version.field() == tag => (
                FindingState::Best,
                format!("the entity tag {tag}"),
                "parts of one version are combined, and others never",
            ),
            Some(version) => (
                FindingState::Limited,
                format!("only the date {}", version.field()),
                "two changes within a second cannot be told apart",
            ),
        };
        let remedy = (state == FindingState::Closed)
            .then(|| "let the origin send an ETag that all its servers agree about".to_owned());
        Finding { name: "version", state, finding, consequence: consequence.to_owned(), remedy }
    }
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
