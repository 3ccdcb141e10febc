//! What the server reports about its work: the access log, metrics, and the transfers under way.

pub(crate) mod access_entry; // the log's entry for one exchange
pub mod access_log;
pub mod metrics;
pub(crate) mod pending_entry;
pub mod transfers;
