//! The options of `underpass share`.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::args::{When, seconds};

/// The options of `share`.
#[derive(Debug, Args)]
pub(crate) struct ShareArgs {
    /// The file or folder to share; with --upload, the folder to put files into
    #[arg(value_name = "FILE or DIR")]
    pub(super) path: PathBuf,

    /// Accept files: anyone with the URL can upload into the folder
    #[arg(long)]
    pub(super) upload: bool,

    /// End after this time, such as 10m or 1h
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    pub(super) time: Option<Duration>,

    /// End after this number of complete downloads or uploads [default: 1, unlimited with --for]
    #[arg(long, value_name = "NUMBER")]
    pub(super) times: Option<NonZeroU64>,

    /// Listen on this address, with or without :PORT
    #[arg(short, long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub(super) bind: String,

    /// Listen on this port; 0 for any free port
    #[arg(short, long, default_value_t = 0)]
    pub(super) port: u16,

    /// Print the first address for other devices as a QR code: auto (if standard error is a
    /// terminal), always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(super) qr: When,

    /// Use HTTPS, with a certificate created at the start
    #[arg(long)]
    pub(super) tls: bool,

    /// Print the receipt as one JSON object on standard output
    #[arg(long)]
    pub(super) json: bool,
}
