//! Requests to the origin: each is a function of the key, the range and the version alone.

use std::net::IpAddr;
use std::ops::Range;

use underpass_client::download::interpret::{FileRequest, Version};

/// What a question is to bring.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// The part of the object that is wanted first; `None` for all of it.
    pub(crate) range: Option<Range<u64>>,
    /// The caches that the client's request has passed (RFC 8586).
    pub(crate) passed: String,
    /// Whether it is known that there is no room for it.
    pub(crate) is_relayed: bool,
    /// The client, whose relays are bounded; `None` without a bound.
    pub(crate) client: Option<IpAddr>,
}

/// The fields of a request for a range of a version.
pub(super) fn file_request(
    range: Option<(u64, Option<u64>)>,
    version: Option<(Version, Option<u64>)>,
) -> FileRequest {
    FileRequest { range, version, wants_digest: None }
}

/// Returns the fields of a request; `own` is the identifier of this node.
pub(super) fn fields(asked: &FileRequest, own: &str, passed: &str) -> Vec<(&'static str, String)> {
    let passed = if passed.is_empty() { own.to_owned() } else { format!("{passed}, {own}") };
    let mut fields = vec![("CDN-Loop", passed), ("Via", "1.1 underpass".to_owned())];
    if let Some(range) = asked.range_field() {
        fields.push(("Range", range));
        if let Some((version, _)) = &asked.version {
            fields.push(("If-Range", version.field().to_owned()));
        }
    }
    fields
}
