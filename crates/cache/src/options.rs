//! The options of a cache.

use std::path::PathBuf;
use std::time::Duration;

use underpass_client::{Credentials, TlsSetup, Url};
use underpass_engine::{MinFree, Policy};
use underpass_protocol::caching::FreshnessRules;

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
    /// The request fields, in lower case, that are sent to origins and are part of keys.
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
