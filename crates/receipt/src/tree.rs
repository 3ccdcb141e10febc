//! The receipt of a fetched folder.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use underpass_client::Url;
use underpass_client::tree::TreeOutcome;
use underpass_engine::EndKind;

use crate::download::shown;
use crate::transfer::{Receipt, TlsReceipt};

/// The receipt of a fetched folder, as one JSON object.
#[derive(Debug, Serialize)]
pub struct TreeReceipt {
    /// The URL, without the password.
    pub url: String,
    /// The local folder.
    pub file: String,
    /// How the folder was fetched, and the counts.
    #[serde(flatten)]
    pub done: TreeOutcome,
    /// The fields of every transfer's receipt.
    #[serde(flatten)]
    pub receipt: Receipt,
}

impl TreeReceipt {
    /// Creates the receipt of a URL.
    #[must_use]
    pub fn new(url: &Url, path: &Path, done: &TreeOutcome, elapsed: Duration) -> Self {
        Self {
            url: shown(url),
            file: path.display().to_string(),
            done: done.clone(),
            receipt: Receipt {
                elapsed_s: elapsed.as_secs_f64(),
                tls: done.tls.as_ref().map(TlsReceipt::from),
                ..Receipt::from(&done.report).between(EndKind::Socket, EndKind::File)
            },
        }
    }
}
