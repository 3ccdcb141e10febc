//! The options of a cache.

use std::path::PathBuf;
use std::time::Duration;

use underpass_client::{Credentials, TlsSetup, Url};
use underpass_engine::{MinFree, Policy};
use underpass_protocol::caching::FreshnessRules;
use underpass_protocol::response::head::path_field;

use crate::fill::RedirectHost;

/// The options of a cache.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The folder on disk, which is created if it is missing.
    pub folder: PathBuf,
    /// The origins, in the order in which they are tried; all must have the same objects.
    pub origins: Vec<OriginOptions>,
    /// The certificate authorities that are trusted for `https` origins.
    pub tls: TlsSetup,
    /// The hosts to which origins may redirect this server.
    pub redirects: Vec<RedirectHost>,
    /// The request fields that are sent to origins and are part of keys, as [`vary_field`] returns
    /// them.
    pub vary_on: Vec<String>,
    /// The maximum size of all stored objects in bytes, if limited.
    pub size: Option<u64>,
    /// The free space of the file system that fills must preserve.
    pub min_free: MinFree,
    /// The defaults for freshness that the origin does not specify.
    pub rules: FreshnessRules,
    /// The time limit for an origin without progress.
    pub timeout: Duration,
    /// The mechanisms that may move the bytes.
    pub policy: Policy,
    /// The number of objects in memory (three descriptors each) above which idle ones are closed.
    pub max_in_memory: usize,
}

/// An origin.
#[derive(Clone, Debug)]
pub struct OriginOptions {
    /// The URL of the origin, or of a prefix in a bucket.
    pub url: Url,
    /// The signer of requests, if it is an object store.
    pub credentials: Credentials,
    /// The URL of the bucket, which ends in a slash, if it is an object store.
    pub bucket: Option<Url>,
}

/// The reason why a request field cannot be one of those on which objects depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VaryError {
    /// It is not a field that can be passed on.
    #[error("it is not a request header that can be passed on")]
    Invalid,
    /// It is meant for one client.
    #[error("a header meant for one client cannot be kept for all")]
    Personal,
    /// The cache writes this field itself.
    #[error("this server writes it itself")]
    Reserved,
}

/// Returns the name of a request field on which objects may depend, in lower case.
///
/// # Errors
///
/// [`VaryError`] for `Authorization` and `Cookie`, which identify one client, for fields that the
/// cache writes itself, such as `Range`, and for those that are not passed on.
///
/// # Examples
///
/// ```
/// use underpass_cache::{VaryError, vary_field};
///
/// assert_eq!(vary_field("Accept-Language").as_deref(), Ok("accept-language"));
/// assert_eq!(vary_field("Cookie"), Err(VaryError::Personal));
/// assert_eq!(vary_field("Range"), Err(VaryError::Reserved));
/// ```
pub fn vary_field(name: &str) -> Result<String, VaryError> {
    let lower = name.to_ascii_lowercase();
    // Responses that vary by `*` match no other request (RFC 9111 4.1).
    if lower == "*" || path_field(&lower, "").is_err() {
        return Err(VaryError::Invalid);
    }
    match lower.as_str() {
        "authorization" | "cookie" => Err(VaryError::Personal),
        "accept-encoding"
        | "cdn-loop"
        | "expect"
        | "host"
        | "if-match"
        | "if-modified-since"
        | "if-none-match"
        | "if-range"
        | "if-unmodified-since"
        | "proxy-authorization"
        | "range"
        | "te"
        | "via" => Err(VaryError::Reserved),
        _ => Ok(lower),
    }
}
