//! The cache keys of requests.

use underpass_cache::{Cache, CacheKey};
use underpass_protocol::request::Request;
use underpass_protocol::request::target::Target;

use crate::routing::context::RequestContext;

/// The method that removes an object, or the listing of a folder, from the cache.
pub(crate) const PURGE: &str = "PURGE";

/// Returns the fields of a request by which objects vary: each name with its value, if it has one.
fn varying<'n>(
    request: &Request<'_, '_>,
    names: &'n [String],
) -> impl Iterator<Item = (&'n str, Option<String>)> {
    names.iter().map(|name| {
        let values = request.fields(name).filter_map(|value| str::from_utf8(value).ok());
        // RFC 9111 4.1: lines of one name can be combined, and spaces around members removed.
        let values = values.flat_map(|value| value.split(',')).map(str::trim);
        let value = request.has(name).then(|| values.collect::<Vec<_>>().join(", "));
        (name.as_str(), value)
    })
}

/// Returns the key of the requested object, or the status and reason for a request that can have no
/// key.
pub(crate) fn key_of(
    ctx: &RequestContext<'_>,
    cache: &Cache,
    target: &Target<'_>,
) -> Result<CacheKey, (u16, &'static str)> {
    if cache.has_stores() && target.is_folder && ctx.request.verb != PURGE {
        // For a store that would be another request: a listing of the bucket.
        return Err((404, "a store has no file for a folder"));
    }
    let key = cache.key(target).ok_or((414, ""))?;
    key.with_fields(varying(&ctx.request, cache.vary_on())).ok_or((431, ""))
}
