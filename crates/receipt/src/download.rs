//! The receipt of one fetched file.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use underpass_client::download::{DownloadError, DownloadFailed, DownloadOutcome};
use underpass_client::{Url, without_credentials};
use underpass_engine::EndKind;
use underpass_transport::digest::DigestCheck;

use crate::transfer::{Receipt, TlsReceipt};

/// The receipt of one fetched file, as one JSON object.
#[derive(Debug, Serialize)]
pub struct GetReceipt {
    /// The URL, without the password.
    pub url: String,
    /// The local file; empty if the transfer failed before it began.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Whether the file was already complete, so that nothing was fetched.
    pub was_here: bool,
    /// The largest number of simultaneous connections.
    pub connections: u32,
    /// Bytes that were present before.
    pub resumed_at: u64,
    /// Bytes of an incomplete file, kept for a resumption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// The digest, if one was computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<DigestReceipt>,
    /// Further digests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub more_digests: Vec<DigestReceipt>,
    /// The fields of every transfer's receipt.
    #[serde(flatten)]
    pub receipt: Receipt,
}

/// The result for one digest of a file.
#[derive(Clone, Debug, Serialize)]
pub struct DigestReceipt {
    /// The algorithm.
    pub algorithm: &'static str,
    /// The digest, in hexadecimal.
    pub value: String,
    /// The expected digest, if there is one.
    pub expected: Option<String>,
    /// Whether they match.
    pub matches: Option<bool>,
    /// Bytes that were read for it, mostly from the page cache.
    pub read_bytes: u64,
}

impl GetReceipt {
    /// Creates the receipt of a URL.
    #[must_use]
    pub fn new(url: &str, path: &Path, done: &DownloadOutcome, elapsed: Duration) -> Self {
        let mut digests = done.facts.iter().map(DigestReceipt::from);
        Self {
            url: url.to_owned(),
            file: path.display().to_string(),
            was_here: done.was_here,
            connections: done.connections,
            resumed_at: done.resumed_at,
            kept: None,
            digest: digests.next(),
            more_digests: digests.collect(),
            receipt: Receipt {
                elapsed_s: elapsed.as_secs_f64(),
                tls: done.tls.as_ref().map(TlsReceipt::from),
                ..Receipt::from(&done.report).between(EndKind::Socket, EndKind::File)
            },
        }
    }

    /// Creates the receipt of a URL that could not be fetched.
    #[must_use]
    pub fn of_failed(url: &str, path: &Path, failed: &DownloadFailed, elapsed: Duration) -> Self {
        let done = DownloadOutcome {
            report: (*failed.report).clone(),
            tls: failed.tls.as_deref().cloned(),
            connections: failed.connections,
            resumed_at: failed.resumed_at,
            facts: match &failed.error {
                DownloadError::Digest(wrong) => vec![(**wrong).clone()],
                _ => Vec::new(),
            },
            ..DownloadOutcome::default()
        };
        let mut receipt = Self::new(url, path, &done, elapsed);
        receipt.receipt.error = Some(failed.to_string());
        receipt.kept = failed.kept.as_ref().map(|kept| kept.bytes);
        receipt
    }

    /// Creates the receipt of a URL whose transfer failed before it began, with this error.
    #[must_use]
    pub fn of_no_transfer(url: &str, error: String) -> Self {
        let done = DownloadOutcome::default();
        let mut receipt = Self::new(url, Path::new(""), &done, Duration::ZERO);
        receipt.receipt.error = Some(error);
        receipt
    }

    /// Returns the results of all digests.
    pub fn digests(&self) -> impl Iterator<Item = &DigestReceipt> {
        self.digest.iter().chain(&self.more_digests)
    }
}

impl From<&DigestCheck> for DigestReceipt {
    fn from(fact: &DigestCheck) -> Self {
        Self {
            algorithm: fact.found.algorithm().name(),
            value: fact.found.hex(),
            expected: fact.expected.as_ref().map(|expected| expected.hex()),
            matches: fact.matches(),
            read_bytes: fact.read_bytes,
        }
    }
}

/// Returns a URL without its password, for display.
#[must_use]
pub fn shown(url: &Url) -> String {
    without_credentials(url).to_string()
}
