//! Detects requests that come back to the cache that sent them (RFC 8586).

use crate::request::Request;

/// Returns whether a request has passed the cache of this identifier. The members of the list may
/// have parameters, which do not count.
#[must_use]
pub fn has_passed(request: &Request<'_, '_>, id: &str) -> bool {
    let mut members = request.fields("cdn-loop").flat_map(|value| value.split(|&b| b == b','));
    members.any(|member| {
        let name = member.split(|&byte| byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(id.as_bytes())
    })
}
