//! The receipt of one fetched file.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use underpass_client::Url;
use underpass_client::download::Done;
use underpass_server::digest::Fact;

use crate::receipt::{EndKind, Receipt, TlsReceipt};

/// What fetching one file did, as one JSON object.
#[derive(Debug, Serialize)]
pub(crate) struct GetReceipt {
    /// From where.
    pub(crate) url: String,
    /// The file here.
    pub(crate) file: String,
    /// Whether it was here already, so that nothing was fetched.
    pub(crate) was_here: bool,
    /// The most connections at one time.
    pub(crate) connections: u32,
    /// Bytes that were here before.
    pub(crate) resumed_at: u64,
    /// Bytes of an incomplete file, which are kept to be resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<u64>,
    /// The digest, if one was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<DigestReceipt>,
    /// The digests after the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) more_digests: Vec<DigestReceipt>,
    #[serde(flatten)]
    pub(crate) receipt: Receipt,
}

/// What is known of one digest of a file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DigestReceipt {
    /// How it was made.
    pub(crate) algorithm: &'static str,
    /// What it is, in hexadecimal.
    pub(crate) value: String,
    /// The expected digest, if there is one.
    pub(crate) expected: Option<String>,
    /// Whether it is that.
    pub(crate) matches: Option<bool>,
    /// Bytes that were read for it, from the page cache mostly.
    pub(crate) read_bytes: u64,
}

impl GetReceipt {
    /// What was done for a URL.
    pub(crate) fn new(url: &str, path: &Path, done: &Done, elapsed: Duration) -> Self {
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

    /// Returns all that is known of its digests.
    pub(crate) fn digests(&self) -> impl Iterator<Item = &DigestReceipt> {
        self.digest.iter().chain(&self.more_digests)
    }
}

impl From<&Fact> for DigestReceipt {
    fn from(fact: &Fact) -> Self {
        Self {
            algorithm: fact.found.algorithm().name(),
            value: fact.found.hex(),
            expected: fact.expected.as_ref().map(|expected| expected.hex()),
            matches: fact.matches(),
            read_bytes: fact.read_bytes,
        }
    }
}

/// Returns a URL as it may be shown: without the password in it.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Only addresses without a host have no place for them.
    let _ = (url.set_username(""), url.set_password(None));
    url.to_string()
}
