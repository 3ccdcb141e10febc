//! The options of `underpass recv`.

use std::path::PathBuf;

use clap::Args;
use underpass_engine::Size;
use underpass_transport::stream::StreamAddress;

use crate::args::{MoveArgs, StreamArgs};
use crate::connection::StreamTlsArgs;

/// The options of `recv`.
// A stream cannot be guarded: the sender guards its file.
#[derive(Debug, Args)]
#[command(mut_arg("integrity", |arg| arg.default_value("fast").hide(true)))]
#[command(override_usage = "underpass recv [OPTIONS] [ADDRESS] [FILE]")]
pub(crate) struct RecvArgs {
    /// Connect to HOST:PORT (IPv6 in brackets) or unix:PATH, unless --listen is given; then write
    /// to FILE, - for standard output [default: -]
    #[arg(value_name = "ADDRESS] [FILE", num_args = 0..=2)]
    pub(super) places: Vec<PathBuf>,

    /// Wait for the sender to connect to this address
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<StreamAddress>,

    /// Expect exactly this many bytes and reserve the space first; fewer or more are an error
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<Size>,

    /// Append to the file, to which no other program may write meanwhile; if the transfer fails,
    /// what was appended is cut off again
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
