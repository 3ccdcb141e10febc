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
    /// The URL, without the password.
    pub(crate) url: String,
    /// The local file.
    pub(crate) file: String,
    /// Whether the file was complete already, so that nothing was fetched.
    pub(crate) was_here: bool,
    /// The most simultaneous connections.
    pub(crate) connections: u32,
    /// Bytes that were present before.
    pub(crate) resumed_at: u64,
    /// Bytes of an incomplete file, which are kept to be resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<u64>,
    /// The digest, if one was computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<DigestReceipt>,
    /// The digests after the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) more_digests: Vec<DigestReceipt>,
    #[serde(flatten)]
    pub(crate) receipt: Receipt,
}

/// The result for one digest of a file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DigestReceipt {
    /// The algorithm.
    pub(crate) algorithm: &'static str,
    /// The digest, in hexadecimal.
    pub(crate) value: String,
    /// The expected digest, if there is one.
    pub(crate) expected: Option<String>,
    /// Whether they match.
    pub(crate) matches: Option<bool>,
    /// Bytes that were read for it, mostly from the page cache.
    pub(crate) read_bytes: u64,
}

impl GetReceipt {
    /// Creates the receipt of a URL.
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

    /// Returns the results for all its digests.
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

/// Returns a URL without its password, which may be shown.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Only URLs without a host have no place for them.
    let _ = (url.set_username(""), url.set_password(None));
    url.to_string()
}
