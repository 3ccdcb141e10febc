//! Listings of folders for requests; `underpass-listing` makes their text.

pub(crate) mod jobs;
pub(crate) mod make;
mod pack;
pub(crate) mod store;
