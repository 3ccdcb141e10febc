//! Incomplete files: their destinations, and the parts that wait for their rest.

pub(crate) mod part;
pub(crate) mod stale_uploads;
pub(crate) mod target;
