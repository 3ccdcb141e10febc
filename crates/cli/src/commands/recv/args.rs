//! The options of `underpass recv`.

use std::path::PathBuf;

use clap::Args;
use underpass_engine::Size;

use crate::args::{MoveArgs, StreamArgs};
use crate::connection::{Address, StreamTlsArgs};

/// What can be typed after `recv`.
#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
    /// Where from, unless --listen is given: HOST:PORT (IPv6 in brackets) or unix:PATH; then the file
    /// to write, - for standard output [default: -]
    #[arg(value_name = "ADDRESS] [FILE", num_args = 0..=2)]
    pub(super) places: Vec<PathBuf>,

    /// Wait for the sender to connect here
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<Address>,

    /// Expect exactly so many bytes; fewer or more are an error, and the space is reserved first
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<Size>,

    /// Write behind what the file has already; a failed transfer cuts it back
    #[arg(long)]
    pub(super) append: bool,

    /// Replace the file if it exists
    #[arg(short, long, conflicts_with = "append")]
    pub(super) force: bool,

    #[command(flatten)]
    pub(super) stream: StreamArgs,

    #[command(flatten)]
    pub(super) tls: StreamTlsArgs,

    #[command(flatten)]
    pub(super) movement: MoveArgs,
}
