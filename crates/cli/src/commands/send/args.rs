//! The options of `underpass send`.

use std::path::PathBuf;

use clap::Args;

use super::range::ByteRange;
use crate::args::{MoveArgs, StreamArgs};
use crate::connection::{Address, StreamTlsArgs};

/// What can be typed after `send`.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The file to send; - for standard input
    pub(super) file: PathBuf,

    /// Where to: HOST:PORT (IPv6 in brackets) or unix:PATH
    #[arg(value_name = "ADDRESS", required_unless_present = "listen")]
    pub(super) to: Option<Address>,

    /// Wait for the receiver to connect here instead
    #[arg(long, value_name = "ADDRESS", conflicts_with = "to")]
    pub(super) listen: Option<Address>,

    /// Send only these bytes, both ends included: 0-1023, 1M- or -4K (the last ones)
    #[arg(long, value_name = "FROM-TO", allow_hyphen_values = true)]
    pub(super) range: Option<ByteRange>,

    #[command(flatten)]
    pub(super) stream: StreamArgs,

    #[command(flatten)]
    pub(super) tls: StreamTlsArgs,

    #[command(flatten)]
    pub(super) movement: MoveArgs,
}
