//! The options of what clients may read and change.

use std::time::Duration;

use clap::Args;
use underpass_engine::{MinFree, Size};

use super::values::{host, on_or_off};
use crate::args::seconds;

/// Access.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access")]
pub(crate) struct AccessArgs {
    /// Require a password: user:password@/folder,/other; @/folder is open to everyone; can be
    /// repeated. The password may be a $6$ or argon2 hash
    #[arg(short, long, value_name = "RULE")]
    pub(crate) auth: Vec<String>,

    /// Accept requests without a password for this host name, such as the one that a reverse proxy
    /// passes on; localhost, addresses and this machine's names are always accepted. * is any name;
    /// can be repeated
    #[arg(long, value_name = "NAME", value_parser = host)]
    pub(crate) allow_host: Vec<String>,

    /// Neither list nor serve paths that match, such as *.log or /private/**; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) hide: Vec<String>,

    /// List and serve names that begin with a dot
    #[arg(long)]
    pub(crate) show_hidden: bool,

    /// Follow symbolic links that lead out of the folder
    #[arg(long)]
    pub(crate) allow_symlink: bool,
}

/// Uploads and other changes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Uploads")]
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own that users set
pub(crate) struct ChangeArgs {
    /// Allow clients with write access to upload and copy files and to create folders
    #[arg(long)]
    pub(crate) allow_upload: bool,

    /// Allow clients with write access to delete; with --allow-upload also to move
    #[arg(long)]
    pub(crate) allow_delete: bool,

    /// The same as --allow-upload --allow-delete
    #[arg(short = 'A', long)]
    pub(crate) allow_all: bool,

    /// Refuse uploads that are larger than this, such as 10G
    #[arg(long, value_name = "SIZE")]
    pub(crate) upload_limit: Option<Size>,

    /// Create missing parent folders of an upload
    #[arg(long)]
    pub(crate) create_parents: bool,

    /// Respond only once a change is on disk and survives a power cut: on or off
    #[arg(long, value_name = "POLICY", default_value = "on", action = clap::ArgAction::Set,
        value_parser = on_or_off(), ignore_case = true, hide_possible_values = true)]
    pub(crate) sync: bool,

    /// Keep an unfinished upload for this time, so that it can be resumed
    #[arg(long, value_name = "TIME", default_value = "86400", value_parser = seconds)]
    pub(crate) upload_expiry: Duration,

    /// Abort an upload that, over the --timeout period, is slower than SIZE per second; 0 for no
    /// limit
    #[arg(long, value_name = "SIZE", default_value = "500")]
    pub(crate) upload_min_rate: Size,

    /// Refuse uploads and copies that would leave less free space on the disk: 10G or 5%
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "0", hide_default_value = true)]
    pub(crate) min_free: MinFree,
}
