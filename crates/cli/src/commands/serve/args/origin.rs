//! The options of an origin, whose files are served from a cache.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use underpass_cache::{RedirectHost, vary_field};
use underpass_engine::{MinFree, Size};

use crate::args::duration;
use crate::connection::StoreArgs;

/// Origin.
#[derive(Clone, Debug, PartialEq, Args)]
#[command(next_help_heading = "Origin")]
pub(crate) struct OriginArgs {
    /// Serve the files of this origin (http://, https:// or s3://BUCKET/PREFIX) from a cache that
    /// is filled on demand; can be repeated, several are tried in order
    #[arg(long, value_name = "URL")]
    pub(crate) origin: Vec<String>,

    /// Keep the cache in this folder, which only one process can use
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,

    /// Limit the size of the cache, such as 500G; the files used least are removed to make room
    #[arg(long, value_name = "SIZE")]
    pub(crate) cache_size: Option<Size>,

    /// Leave this much of the disk free: 10G or 5% [default: 5%]
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub(crate) cache_free: Option<MinFree>,

    /// Treat a file as fresh for this time, such as 60s, if the origin says nothing about caching
    /// [default: a tenth of the time since it was changed]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) fresh: Option<Duration>,

    /// Serve a file for this time after it has become stale if the origin fails, such as 1d
    /// [default: 0]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) stale_if_error: Option<Duration>,

    /// Follow redirects of the origin to this host, such as *.hf.co or cdn.example.org:8443; can be
    /// repeated
    #[arg(long, value_name = "HOST")]
    pub(crate) origin_redirect: Vec<RedirectHost>,

    /// Pass this request header on to the origin, and keep a file for each of its values; can be
    /// repeated
    #[arg(long, value_name = "NAME", value_parser = vary_field)]
    pub(crate) vary_on: Vec<String>,

    /// Trust the certificate authorities in this PEM file instead of the system's for origins
    #[arg(long, value_name = "FILE")]
    pub(crate) origin_cacert: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}
