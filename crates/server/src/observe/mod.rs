//! What `underpass-observe` needs to know of an exchange.

pub(crate) mod access_entry; // the log's entry for one exchange
pub(crate) mod pending_entry; // entries that wait
