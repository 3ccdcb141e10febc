//! The options of a cache.

use std::path::PathBuf;
use std::time::Duration;

use underpass_client::{Credentials, TlsSetup, Url};
use underpass_engine::Policy;
use underpass_protocol::caching::FreshnessRules;

use crate::fill::RedirectHost;

/// The options of a cache.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The folder on disk, which is created if there is none.
    pub folder: PathBuf,
    /// The origins, in the order in which they are tried; all have the same objects.
    pub origins: Vec<OriginOptions>,
    /// Which servers of `https` are trusted.
    pub tls: TlsSetup,
    /// The hosts to which origins may redirect this server.
    pub redirects: Vec<RedirectHost>,
    /// The fields of clients, in lower case, that are sent to origins and are part of keys.
    pub vary_on: Vec<String>,
    /// The maximum size of all stored objects in bytes, if limited.
    pub size: Option<u64>,
    /// The space of the file system that fills leave free.
    pub keep_free: KeepFree,
    /// The defaults for what the origin does not say about freshness.
    pub rules: FreshnessRules,
    /// The time without progress after which the origin is given up.
    pub timeout: Duration,
    /// The mechanisms that may move the bytes.
    pub policy: Policy,
    /// The number of objects in memory above which idle ones, of three descriptors, are forgotten.
    pub max_in_memory: usize,
}

/// An origin.
#[derive(Clone, Debug)]
pub struct OriginOptions {
    /// Its URL, or that of a prefix in a bucket.
    pub url: Url,
    /// The signer of requests, if it is an object store.
    pub credentials: Credentials,
    /// The URL of its bucket, which ends in a slash, if it is an object store.
    pub bucket: Option<Url>,
}

/// Space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepFree {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the whole file system.
    Percent(u8),
}
