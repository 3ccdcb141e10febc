//! The options that limit the server.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;
use underpass_engine::Size;

use crate::args::{duration, rate, seconds};

/// Limits.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Serve with N threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,

    /// Limit the number of connections [default: by the limit of open files, up to 65536]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: Option<u32>,

    /// Limit the number of connections from one address, 0 for no limit; a reverse proxy is one
    /// address, unless it is a --trusted-proxy [default: half of all]
    #[arg(long, value_name = "N")]
    pub(crate) max_per_address: Option<u32>,

    /// Refuse archives of more entries than this, subfolders included
    #[arg(long, value_name = "N", default_value = "1000000")]
    pub(crate) max_archive_entries: NonZeroUsize,

    /// Limit each connection to SIZE per second, such as 512K
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<Size>,

    /// Drop from the page cache what a download has read from disk, so that files that are read
    /// once do not displace files that are read often
    #[arg(long)]
    pub(crate) drop_behind: bool,

    /// Close a connection on which nothing has moved for this time
    #[arg(long, value_name = "TIME", default_value = "75", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// After SIGTERM, wait this long for running transfers
    #[arg(long, value_name = "TIME", default_value = "25", value_parser = duration)]
    pub(crate) drain: Duration,
}
