//! The options of responses.

use clap::Args;
use underpass_server::Redirect;

use super::values::{Header, cache_control, header};

/// Responses.
#[derive(Debug, Args)]
#[command(next_help_heading = "Responses")]
pub(crate) struct PageArgs {
    /// Respond to a folder with its index.html, or with 404 if it has none
    #[arg(long)]
    pub(crate) render_index: bool,

    /// Respond to unknown paths with the index.html of the root, for a single-page application
    #[arg(long)]
    pub(crate) render_spa: bool,

    /// Disable directory listings, and archives of folders
    #[arg(long)]
    pub(crate) no_listing: bool,

    /// Disable downloads of folders as tar and zip archives
    #[arg(long)]
    pub(crate) no_archive: bool,

    /// Disable /.underpass/health
    #[arg(long)]
    pub(crate) no_health: bool,

    /// Disable /.underpass/metrics
    #[arg(long)]
    pub(crate) no_metrics: bool,

    /// Disable /.underpass/transfers
    #[arg(long)]
    pub(crate) no_transfers: bool,

    /// Let scripts in HTML and SVG files run as pages of this server, even with uploads or
    /// passwords
    #[arg(long)]
    pub(crate) allow_scripts: bool,

    /// Let pages of every origin read responses (CORS)
    #[arg(long)]
    pub(crate) enable_cors: bool,

    /// Send this Cache-Control with files, such as max-age=3600
    #[arg(long, value_name = "VALUE", value_parser = cache_control)]
    pub(crate) cache_control: Option<String>,

    /// Add a header to every response ('X-Frame-Options: DENY') or, after a pattern that begins
    /// with / or *, to files that match ('*.js Cache-Control: immutable'); can be repeated
    #[arg(long, value_name = "HEADER", value_parser = header)]
    pub(crate) header: Vec<Header>,

    /// Redirect a path, or with * every path that begins with it, with 301, 302, 307 or 308: '/old
    /// /new 301', '/old/* /new/* 308', or to a URL with a host; can be repeated, the first match
    /// counts
    #[arg(long, value_name = "REDIRECT")]
    pub(crate) redirect: Vec<Redirect>,

    /// Send files with this extension as this media type: gguf=application/x-gguf; can be repeated
    #[arg(long, value_name = "EXT=TYPE")]
    pub(crate) mime: Vec<String>,
}
