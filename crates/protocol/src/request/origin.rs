//! Cross-origin requests: a browser sends requests of a page from another site with the user's
//! credentials.

use super::authority::{is_https, is_same_authority, split_absolute};
use super::parse::Request;

/// Returns whether a browser sends the request for a page of another origin.
///
/// `Sec-Fetch-Site` cannot be set by a page, and is right behind proxies that change `Host`; but
/// browsers send it only over TLS and to this machine. Elsewhere `Origin` (RFC 6454 7) has to
/// name the requested server. Programs other than browsers send neither.
///
/// `is_secure` says whether the request came over TLS to this server: then the scheme of `Origin`
/// has to be https, because a machine in between can forge pages over http. Otherwise a proxy may
/// have terminated TLS.
#[must_use]
pub fn is_foreign(request: &Request<'_, '_>, is_secure: bool) -> bool {
    let mut sites = request.fields("sec-fetch-site").peekable();
    if sites.peek().is_some() {
        return !sites.all(|site| site == b"same-origin" || site == b"none");
    }
    let own = request.authority().unwrap_or_default();
    !request.fields("origin").all(|origin| {
        // `null` is a page with an undisclosed origin.
        split_absolute(origin).is_some_and(|(authority, rest)| {
            let is_scheme = !is_secure || is_https(origin);
            is_scheme && rest.is_empty() && is_same_authority(origin, authority, own)
        })
    })
}
