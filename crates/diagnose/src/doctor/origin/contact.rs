//! Examines a server's response to a request for the first byte of a file.

use std::time::{Duration, Instant};

use underpass_client::download::interpret::{StrongValidator, has_ranges};
use underpass_client::{ClientError, HttpClient, Request, Response, Url};
use underpass_protocol::caching::{NotStored, may_store};
use underpass_transport::tls::EncryptedBy;

use crate::doctor::finding::Finding;

/// Examines a file with one request.
pub(super) fn of_file(client: &HttpClient<'_>, url: &Url, first: &Contact) -> Vec<Finding> {
    let mut findings = vec![first.reachability(), first.encryption(url)];
    if !first.is_file() {
        findings.push(
            Finding::closed("file")
                .finding(format!("{} for {}", first.response.status, url.path()))
                .consequence("ranges and versions cannot be examined")
                .remedy("name a file of the origin: --origin https://HOST/FILE"),
        );
        return findings;
    }
    findings.push(first.ranges());
    // Several servers behind one name may not agree about the version.
    let again =
        Contact::new(client, url).ok().and_then(|again| StrongValidator::of(&again.response));
    findings.push(first.version(again.as_ref()));
    findings.extend(first.caching());
    findings
}

pub(super) fn unreachable(error: &ClientError) -> Finding {
    Finding::closed("origin")
        .finding(error.to_string())
        .consequence("the cache serves only what it has")
        .remedy("check the address, the network, and --origin-cacert")
}

/// A request for the first byte of a file, and its response.
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
        let address = &self.address;
        Finding::best("origin")
            .finding(format!(
                "{address} connects in {connecting:.1} ms and answers in {answering:.1} ms"
            ))
            .consequence("the first byte of a miss is sent this much later than that of a hit")
    }

    fn encryption(&self, url: &Url) -> Finding {
        match self.encrypted_by {
            None => Finding::limited("origin-tls")
                .finding(format!("{} is not encrypted", url.scheme()))
                .consequence("any machine on the network path can read and change what is cached")
                .remedy("an https URL"),
            Some("the kernel") => Finding::best("origin-tls")
                .finding("the certificate is valid, and the kernel decrypts")
                .consequence("cache fills go from the socket to the disk by splice"),
            Some(by) => Finding::limited("origin-tls")
                .finding(format!("the certificate is valid, and {by} decrypts"))
                .consequence("the bytes of fills pass through user space")
                .remedy("modprobe tls"),
        }
    }

    fn ranges(&self) -> Finding {
        let range = self.response.fields.text("content-range").unwrap_or_default();
        if self.response.status == 206 && range.starts_with("bytes 0-0/") {
            return Finding::best("ranges")
                .finding("ranges are answered")
                .consequence("any part can be fetched directly");
        }
        // An empty file has no first byte (RFC 9110 14.1.2).
        if self.response.fields.text("content-length") == Some("0") {
            return Finding::limited("ranges")
                .finding("the file is empty, so no range of it can be requested")
                .consequence("it is not known whether ranges are answered")
                .remedy("name a file with some bytes");
        }
        let finding = if has_ranges(&self.response) {
            "ranges are announced, but not answered"
        } else {
            "ranges are not answered"
        };
        Finding::limited("ranges")
            .finding(finding)
            .consequence("files are fetched whole, from their start")
    }

    /// Returns a finding if the origin forbids a node to keep the file.
    fn caching(&self) -> Option<Finding> {
        let fields = self.response.fields.iter();
        let fields: Vec<_> = fields
            .map(|(name, value)| {
                (name.to_ascii_lowercase(), String::from_utf8_lossy(value).into_owned())
            })
            .collect();
        let why = may_store(self.response.status, &fields, &[]).err()?;
        let (field, remedy) = match why {
            NotStored::NoStore | NotStored::Private => {
                ("Cache-Control", "let the origin send Cache-Control: max-age=3600")
            }
            NotStored::Cookie => ("Set-Cookie", "let the origin set no cookies with files"),
            NotStored::Varies if self.varies_always() => ("Vary", "let the origin send no Vary: *"),
            NotStored::Varies => ("Vary", "name the request headers in Vary by --vary-on"),
        };
        let value = self.response.fields.text(field).filter(|_| why != NotStored::Cookie);
        let value = value.map_or_else(String::new, |value| format!(": {value}"));
        Some(
            Finding::closed("caching")
                .finding(format!("the origin forbids to keep the file by {field}{value}"))
                .consequence("each request is sent to the origin, and nothing is kept")
                .remedy(remedy),
        )
    }

    /// Returns whether no other request can have the same response (RFC 9110 12.5.5).
    fn varies_always(&self) -> bool {
        self.response.fields.text("vary").is_some_and(|names| names.contains('*'))
    }

    fn version(&self, again: Option<&StrongValidator>) -> Finding {
        let name = "version";
        let remedy = "let the origin send an ETag that all its servers agree about";
        let version = StrongValidator::of(&self.response);
        let tag = self.response.fields.text("etag").unwrap_or_default();
        match &version {
            None => Finding::closed(name)
                .finding("no strong ETag, and no Last-Modified that is older than the response")
                .consequence("interrupted fills start over, and parts are not kept")
                .remedy(remedy),
            Some(_) if again != version.as_ref() => Finding::closed(name)
                .finding("two requests in a row got two versions")
                .consequence("downloads are reset whenever the version changes")
                .remedy(remedy),
            Some(version) if version.field() == tag => Finding::best(name)
                .finding(format!("the entity tag {tag}"))
                .consequence("parts of one version are combined, and others never"),
            Some(version) => Finding::limited(name)
                .finding(format!("only the date {}", version.field()))
                .consequence("two changes within a second cannot be told apart"),
        }
    }
}
