//! Checks the two ends of a cache: its origin, which may be an object store, and its disk.

mod contact;
mod disk;
mod store;

use underpass_client::s3::Store;
use underpass_client::{HttpClient, Url};

use super::finding::Finding;
use contact::Contact;
pub use disk::examine_disk;

/// Examines the file of an origin at `url`, or an object store and one of its objects.
///
/// Each finding says what `serve --origin` does with such an origin. It takes as long as `client`
/// allows for a few requests.
#[must_use]
pub fn examine_origin(client: &HttpClient<'_>, url: &Url, store: Option<&Store>) -> Vec<Finding> {
    if let Some(store) = store {
        return store::examine(client, store);
    }
    match Contact::new(client, url) {
        Ok(first) => contact::of_file(client, url, &first),
        Err(error) => vec![contact::unreachable(&error)],
    }
}
