//! HTTP caching (RFC 9111) for a cache that many clients share: what may be stored, how long it is
//! fresh, and how a response tells about it.
//!
//! Fields are given as pairs of a lower-case name and a value.

mod directives;
mod freshness;
mod status;
mod storing;

pub use directives::Directives;
pub use freshness::{Freshness, FreshnessRules, ResponseTimes, Use};
pub use status::{CacheStatus, Forward};
pub use storing::{NotStored, has_passed, may_store};

/// The fields of a response.
pub type FieldList = [(String, String)];

/// Returns the values of all fields of a name, which is in lower case.
pub(crate) fn values<'f>(fields: &'f FieldList, name: &str) -> impl Iterator<Item = &'f str> {
    fields.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
}
