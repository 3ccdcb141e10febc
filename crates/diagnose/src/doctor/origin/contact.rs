//! Examines what a server answers for the first byte of a file.

use std::time::{Duration, Instant};

use underpass_client::download::interpret::{StrongValidator, has_ranges};
use underpass_client::{ClientError, HttpClient, Request, Response, Url};
use underpass_transport::tls::EncryptedBy;

use crate::doctor::finding::{Finding, FindingState};

/// Examines a file with one request.
pub(super) fn of_file(client: &HttpClient<'_>, url: &Url, first: &Contact) -> Vec<Finding> {
    let mut findings = vec![first.reachability(), first.encryption(url)];
    if !first.is_file() {
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
    let again =
        Contact::new(client, url).ok().and_then(|again| StrongValidator::of(&again.response));
    findings.push(first.version(again.as_ref()));
    findings
}

pub(super) fn unreachable(error: &ClientError) -> Finding {
    Finding {
        name: "origin",
        state: FindingState::Closed,
        finding: error.to_string(),
        consequence: "the cache serves only what it has".to_owned(),
        remedy: Some("check the address, the network, and --origin-cacert".to_owned()),
    }
}

/// A question for the first byte of a file, and its answer.
pub(super) struct Contact {
    pub(super) response: Response,
    connecting: Duration,
    answering: Duration,
    address: String,
    encrypted_by: Option<&'static str>,
}

impl Contact {
    pub(super) fn new(client: &HttpClient<'_>, url: &Url) -> Result<Self, ClientError> {
        let request = Request { method: "GET", fields: &[("Range", "bytes=0-0")] };
        let started = Instant::now();
        let mut connection = client.connect(url)?;
        let connecting = started.elapsed();
        let sent = Instant::now();
        let response = connection.exchange(client, &request, url, true)?;
        Ok(Self {
            connecting,
            answering: sent.elapsed(),
            address: connection.address().to_owned(),
            encrypted_by: connection.tls().map(|facts| match facts.encrypted_by {
                EncryptedBy::Kernel => "the kernel",
                EncryptedBy::UserSpace(_) => "this program",
            }),
            response,
        })
    }

    /// Returns whether the answer is a file.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.response.status, 200 | 206)
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

    fn version(&self, again: Option<&StrongValidator>) -> Finding {
        let version = StrongValidator::of(&self.response);
        let tag = self.response.fields.text("etag").unwrap_or_default();
        let (state, finding, consequence) = match &version {
            None => (
                FindingState::Closed,
                "no strong ETag, and no Last-Modified that is older than the response".to_owned(),
                "interrupted fills start over, and parts are not kept",
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
