//! Listings of folders for requests; `underpass-listing` makes their text.

pub(crate) mod jobs;
pub(crate) mod make;
pub(crate) mod pack;
pub(crate) mod store;
