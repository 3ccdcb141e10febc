//! Incomplete files: their destinations, and the parts that wait for their rest.

pub(crate) mod part;
pub(crate) mod stale_uploads; // parts whose rest has not come for long
pub(crate) mod target; // where a file is to be
