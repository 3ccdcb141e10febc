//! Listings of folders for requests; `underpass-listing` makes their text.

pub(crate) mod jobs; // those under way
pub(crate) mod make; // makes them for requests
mod pack; // compresses and frames
pub(crate) mod store; // folders of an object store
