//! What `underpass-observe` needs to know of an exchange.

pub(crate) mod access_entry;
pub(crate) mod pending_entry;
