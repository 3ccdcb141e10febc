//! The options of `underpass send`.

use std::path::PathBuf;

use clap::Args;
use underpass_transport::stream::StreamAddress;

use super::range::ByteRange;
use crate::args::{MoveArgs, StreamArgs};
use crate::connection::StreamTlsArgs;

/// The options of `send`.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Send this file; - for standard input
    pub(super) file: PathBuf,

    /// Connect to HOST:PORT (IPv6 in brackets) or unix:PATH
    #[arg(value_name = "ADDRESS", required_unless_present = "listen")]
    pub(super) to: Option<StreamAddress>,

    /// Wait for the receiver to connect to this address instead
    #[arg(long, value_name = "ADDRESS", conflicts_with = "to")]
    pub(super) listen: Option<StreamAddress>,

    /// Send only this range, both ends included: 0-1023, 1M- or -4K (the last 4 KiB)
    #[arg(long, value_name = "FROM-TO", allow_hyphen_values = true)]
    pub(super) range: Option<ByteRange>,

    #[command(flatten)]
    pub(super) stream: StreamArgs,

    #[command(flatten)]
    pub(super) tls: StreamTlsArgs,

    #[command(flatten)]
    pub(super) movement: MoveArgs,
}
