//! Whole folders: from our own servers as one archive, unpacked while it comes in, and from others
//! by their listings, file by file.
//!
//! In an archive the files come one behind the other: small ones are taken through memory, which is
//! cheaper, and large ones go from the socket to their place by the engine. How far it came is
//! noted in a journal, so that whoever comes after a crash goes on from there. Nothing here prints
//! or reads the environment.

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
use std::sync::atomic::AtomicBool;

use url::Url;

use super::http::HttpClient;
use task::TreeFetch;

pub use error::{TreeDone, TreeError, TreeFailed, TreeWay};
pub use options::{Reason, Tell, TreeEvent, TreeGauge, TreeOptions};
pub use paths::{Refusal, check_target, name_of, relative};

/// Fetches everything beneath `url` into the folder `path`, which is made if it is missing.
///
/// What would lead out of the folder is left out and told, and so is what cannot be made for other
/// reasons of its own; the rest goes on.
///
/// # Errors
///
/// [`TreeFailed`].
///
/// # On failure
///
/// What is here is kept, and the same call goes on with it: in a folder of the name with `.part`
/// behind it, if there was none of the name.
pub fn fetch(
    client: &HttpClient<'_>,
    options: &TreeOptions,
    url: &Url,
    path: &Path,
    gauge: &TreeGauge,
    tell: Tell<'_>,
) -> Result<TreeDone, TreeFailed> {
    let mut done = TreeDone::default();
    let (url, has_answered) = (folder_of(url), &AtomicBool::new(false));
    let mut tree =
        TreeFetch { client, options, url, path, gauge, tell, has_answered, done: &mut done };
    match run(&mut tree) {
        Ok(()) => Ok(done),
        Err(error) => Err(TreeFailed { error, done: Box::new(done) }),
    }
}

/// Fetches the folder as an archive if the server has one, and by its listings if not.
fn run(tree: &mut TreeFetch<'_, '_>) -> Result<(), TreeError> {
    if tree.options.archive
        && let Some(offer) = archive::offer(tree)?
    {
        return archive::fetch(tree, offer);
    }
    crawl::fetch(tree)
}

/// The address of a folder ends in a slash.
fn folder_of(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    url
}
