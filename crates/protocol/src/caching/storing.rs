//! Decides which responses a shared cache may store (RFC 9111 3), and detects requests that loop.

use std::fmt;

use super::{Directives, FieldList, values};
use crate::request::Request;

/// The reason why a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStored {
    /// `no-store`.
    NoStore,
    /// `private`.
    Private,
    /// `Set-Cookie`, which is meant for one client.
    Cookie,
    /// `Vary` names a field that is not part of the cache's requests, or `*`.
    Varies,
}

impl fmt::Display for NotStored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::Cookie => "set-cookie",
            Self::Varies => "vary",
        })
    }
}

/// Checks that a response to a GET may be stored for all clients.
///
/// The cache's requests have no fields of a client but `vary_on`, which are in lower case and part
/// of the key. So a response that varies only by these, and by what the cache always sends in the
/// same way, or never, is the same for all clients with this key (4.1).
///
/// # Errors
///
/// The reason why it may not.
pub fn may_store(status: u16, fields: &FieldList, vary_on: &[String]) -> Result<(), NotStored> {
    let directives = Directives::of(fields);
    // Of a status that is understood, `no-store` is for caches that do not understand it.
    if if directives.must_understand { !is_understood(status) } else { directives.no_store } {
        return Err(NotStored::NoStore);
    }
    if directives.private {
        return Err(NotStored::Private);
    }
    if values(fields, "set-cookie").next().is_some() {
        return Err(NotStored::Cookie);
    }
    let names = values(fields, "vary").flat_map(|value| value.split(','));
    let is_same = |name: &str| {
        let name = name.trim().to_ascii_lowercase();
        SAME_FOR_ALL.contains(&name.as_str())
            || name.starts_with("access-control-request-")
            || vary_on.contains(&name)
    };
    if names.into_iter().all(is_same) { Ok(()) } else { Err(NotStored::Varies) }
}

/// Returns whether a request has passed the cache of this identifier and has come
/// back to it (RFC 8586). The members of the list may have parameters, which do not count.
#[must_use]
pub fn has_passed(request: &Request<'_, '_>, id: &str) -> bool {
    let mut members = request.fields("cdn-loop").flat_map(|value| value.split(|&b| b == b','));
    members.any(|member| {
        let name = member.split(|&byte| byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(id.as_bytes())
    })
}

/// Returns whether a status is one of RFC 9110 that a GET can have, so that its rules are known.
fn is_understood(status: u16) -> bool {
    matches!(status, 200..=206 | 300..=308 | 400..=417 | 421 | 422 | 426 | 429 | 500..=505)
}

/// Fields that the requests of the cache always have in the same form, or never have; empty
/// members of a list say nothing.
const SAME_FOR_ALL: [&str; 3] = ["", "accept-encoding", "origin"];
