//! Requests of clients and to origins.

use std::net::IpAddr;
use std::ops::Range;

use underpass_client::download::interpret::{FileRequest, StrongValidator};

use super::origins::{OriginFailure, OriginResponse, is_node_id};
use crate::error::CacheErrorKind;
use crate::key::CacheKey;
use crate::shared::CacheState;

/// A client's request for an object.
#[derive(Clone, Debug, Default)]
pub struct ObjectRequest {
    /// The part that is fetched first, if it does not depend on the length; `None` for all of it.
    pub range: Option<Range<u64>>,
    /// The value of the request's `CDN-Loop` field (RFC 8586), whose nodes are forwarded.
    pub cdn_loop: String,
    /// The reason why the object is relayed without being stored, if it is.
    pub why_relayed: Option<CacheErrorKind>,
    /// The client or its network, which limits its fetches, fills and relays; `None` for no limit.
    pub client: Option<IpAddr>,
}

impl ObjectRequest {
    /// Returns the request with its range extended to whole MiB.
    pub(crate) fn aligned(&self) -> Self {
        let range = self.range.as_ref().map(|range| {
            let end = range.end.max(range.start.saturating_add(1));
            let end = end.checked_next_multiple_of(RANGE_ALIGNMENT).unwrap_or(u64::MAX);
            range.start / RANGE_ALIGNMENT * RANGE_ALIGNMENT..end
        });
        Self { range, ..self.clone() }
    }
}

/// The fields of a request for a range of a version.
pub(super) fn file_request(
    range: Option<(u64, Option<u64>)>,
    version: Option<(StrongValidator, Option<u64>)>,
) -> FileRequest {
    FileRequest { range, version, ..FileRequest::default() }
}

/// Sends a request for an object to the origins, with more fields; `is_resumed` continues a body.
pub(super) fn send(
    shared: &CacheState,
    key: &CacheKey,
    request: &FileRequest,
    more: &[(&'static str, String)],
    cdn_loop: &str,
    is_resumed: bool,
) -> Result<OriginResponse, OriginFailure> {
    let mut lines = fields(request, &shared.origins.id, cdn_loop);
    lines.extend_from_slice(more);
    let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let note = |origin: &str, why: &str| shared.origin_failed(key, origin, why);
    shared.origins.send(key, &lines, is_resumed, &shared.counters.requests, &note)
}

/// Returns the fields of a request; `own` is the identifier of this server.
fn fields(asked: &FileRequest, own: &str, cdn_loop: &str) -> Vec<(&'static str, String)> {
    let mut fields =
        vec![("CDN-Loop", loop_field(cdn_loop, own)), ("Via", "1.1 underpass".to_owned())];
    if let Some(range) = asked.range_field() {
        fields.push(("Range", range));
        if let Some((validator, _)) = &asked.version {
            fields.push(("If-Range", validator.field().to_owned()));
        }
    }
    fields
}

/// Returns the value of `CDN-Loop`: the last nodes that a request has passed, and this one. Other
/// names are omitted: with one of them, or too many, a client could make the origin refuse a fetch
/// that is shared by all.
fn loop_field(passed: &str, own: &str) -> String {
    let names = passed.split(',').map(|name| name.split(';').next().unwrap_or_default().trim());
    let mut nodes: Vec<_> = names.filter(|name| is_node_id(name)).collect();
    nodes.push(own);
    nodes[nodes.len().saturating_sub(MAX_PASSED)..].join(", ")
}

/// The maximum number of nodes in `CDN-Loop`, which take half of the 1 KiB that a node accepts.
const MAX_PASSED: usize = 18;

/// The first fetch of an object is aligned to this number of bytes.
const RANGE_ALIGNMENT: u64 = 1 << 20;
