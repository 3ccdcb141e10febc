//! Collects the facts about an exchange that `underpass-observe` reports.

pub(crate) mod access_entry;
pub(crate) mod pending_entry;
