//! The receipt of a fetched folder.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use underpass_client::Url;
use underpass_client::tree::{TreeDone, TreeMethod};
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
    /// The way by which the folder was fetched: `archive` or `listing`.
    pub way: &'static str,
    /// Files that were fetched.
    pub files: u64,
    /// Files that were present already.
    pub here: u64,
    /// Folders that were created.
    pub folders: u64,
    /// Links that were created.
    pub links: u64,
    /// Entries that could not be created.
    pub left_out: u64,
    /// Files, links and folders that were removed, because the server does not list them.
    pub removed: u64,
    /// The most simultaneous connections.
    pub connections: u32,
    /// Bytes of the archive that were present before.
    pub resumed_at: u64,
    /// The receipt that every transfer has.
    #[serde(flatten)]
    pub receipt: Receipt,
}

impl TreeReceipt {
    /// Creates the receipt of a URL.
    #[must_use]
    pub fn new(url: &Url, path: &Path, done: &TreeDone, elapsed: Duration) -> Self {
        Self {
            url: shown(url),
            file: path.display().to_string(),
            way: match done.method {
                TreeMethod::Archive => "archive",
                TreeMethod::Listing => "listing",
            },
            files: done.files,
            here: done.here,
            folders: done.folders,
            links: done.links,
            left_out: done.left_out,
            removed: done.removed,
            connections: done.connections,
            resumed_at: done.resumed_at,
            receipt: Receipt {
                elapsed_s: elapsed.as_secs_f64(),
                tls: done.tls.as_ref().map(TlsReceipt::from),
                ..Receipt::from(&done.report).between(EndKind::Socket, EndKind::File)
            },
        }
    }
}
