//! Fetches whole folders: from our own servers as one archive that is unpacked while it arrives,
//! and from others file by file, according to their listings.
//!
//! An archive has files one after another: small ones are copied through memory, which is cheaper,
//! and large ones are moved from the socket to their file by the engine. A journal records how far
//! the archive has been unpacked, so that a later process can resume after a crash. This module
//! neither prints nor reads the environment.

mod archive;
mod crawl;
mod dest;
mod error;
pub mod listing;
mod options;
mod paths;
mod retry;
pub mod tar;
mod task;
mod write_log;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use url::Url;

use super::download::RateLimit;
use super::error::ClientError;
use super::http::{HttpClient, Request};
use crate::tree::error::Result;
use task::TreeFetch;

pub(crate) use dest::ignores_case;
pub use error::{
    PruneRefusal, SourceFolderError, TargetFolderError, TreeError, TreeFailed, TreeMethod,
    TreeOutcome,
};
pub use options::{OnTreeEvent, PathFilter, TreeEvent, TreeGauge, TreeOptions};
pub use paths::{EntryRefusal, check_target, name_of, relative};

/// Fetches everything beneath `url` into the folder `path`, which is created if it is missing.
///
/// Entries that would lead out of the folder are left out and reported, and so are those whose own
/// name or kind keeps them from being created; the rest is fetched.
///
/// # Errors
///
/// [`TreeFailed`], with the reason ([`TreeError`]) and what was fetched until then.
///
/// # On failure
///
/// Bytes that have arrived are kept, and the same call resumes: in a folder with the suffix
/// `.part`, if there was no folder of the name.
///
/// # Examples
///
/// ```no_run
/// use std::path::Path;
/// use underpass_client::tree::{TreeEvent, TreeGauge, TreeOptions, fetch};
/// use underpass_client::{HttpClient, Url};
///
/// let url = Url::parse("http://192.0.2.1:5000/photos/")?;
/// let on_event = |event: &TreeEvent<'_>| eprintln!("{event:?}");
/// let (options, gauge) = (TreeOptions::default(), TreeGauge::default());
/// let to = Path::new("photos");
/// let done = fetch(&HttpClient::default(), &options, &url, to, &gauge, &on_event)?;
/// println!("{} files", done.files);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fetch(
    client: &HttpClient<'_>,
    options: &TreeOptions,
    url: &Url,
    path: &Path,
    gauge: &TreeGauge,
    on_event: &OnTreeEvent<'_>,
) -> Result<TreeOutcome, TreeFailed> {
    let mut done = TreeOutcome::default();
    let (url, has_answered) = (folder_of(url), &AtomicBool::new(false));
    let rate_limit = Arc::new(RateLimit::new(options.rate));
    let mut tree = TreeFetch {
        client,
        options,
        url,
        path,
        gauge,
        on_event,
        has_answered,
        rate_limit,
        done: &mut done,
    };
    match run(&mut tree) {
        Ok(()) => Ok(done),
        Err(error) => {
            let is_file = is_missing(&error) && is_file(client, &tree.url);
            let error = if is_file { SourceFolderError::IsFile.into() } else { error };
            Err(TreeFailed { error, done: Box::new(done) })
        }
    }
}

/// Fetches the folder as an archive if the server offers one, and by its listings if not.
fn run(tree: &mut TreeFetch<'_, '_>) -> Result<()> {
    if tree.options.archive
        && let Some(offer) = archive::offer(tree)?
    {
        return archive::fetch(tree, offer);
    }
    crawl::fetch(tree)
}

/// Returns whether the server has no folder at the address.
fn is_missing(error: &TreeError) -> bool {
    matches!(
        error,
        TreeError::Source(SourceFolderError::NotThere)
            | TreeError::Client(ClientError::Status { status: 404, .. })
    )
}

/// Returns whether the server has a file of this name, whose URL has no slash at its end.
fn is_file(client: &HttpClient<'_>, folder: &Url) -> bool {
    let mut url = folder.clone();
    url.set_path(folder.path().trim_end_matches('/'));
    let request = Request { method: "HEAD", fields: &[] };
    let answer = client.execute(None, &request, &url);
    answer.is_ok_and(|it| it.response.status == 200 && !it.url.path().ends_with('/'))
}

/// Returns the URL of a folder, which ends in a slash.
fn folder_of(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    url
}
