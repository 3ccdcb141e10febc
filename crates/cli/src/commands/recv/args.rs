//! The options of `underpass recv`.

use std::path::{Path, PathBuf};

use clap::Args;
use underpass_engine::Size;
use underpass_transport::stream::StreamAddress;

use crate::args::{MoveArgs, StreamArgs};
use crate::connection::StreamTlsArgs;
use crate::failure::{Failure, Result, UsageError};

/// The options of `recv`.
// A stream cannot be guarded: the sender guards its file.
#[derive(Debug, Args)]
#[command(mut_arg("integrity", |arg| arg.default_value("fast").hide(true)))]
#[command(override_usage = "underpass recv [OPTIONS] [ADDRESS] [FILE]")]
pub(crate) struct RecvArgs {
    /// Connect to HOST:PORT (IPv6 in brackets) or unix:PATH, unless --listen is given; then write
    /// to FILE, - for standard output [default: -]
    #[arg(value_name = "ADDRESS] [FILE", num_args = 0..=2)]
    places: Vec<PathBuf>,

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

impl RecvArgs {
    /// Returns the address and the file that the one or two positional arguments mean.
    pub(super) fn ends(&self) -> Result<(Option<StreamAddress>, &Path)> {
        let stdout = Path::new("-");
        match (&self.listen, self.places.as_slice()) {
            (Some(_), []) => Ok((None, stdout)),
            (Some(_), [file]) => Ok((None, file)),
            (None, [from]) => Ok((Some(address(from)?), stdout)),
            (None, [from, file]) => Ok((Some(address(from)?), file)),
            (Some(_), _) => Err(RecvError::SeveralFiles.into()),
            (None, _) => Err(RecvError::NoAddress.into()),
        }
    }
}

fn address(text: &Path) -> Result<StreamAddress> {
    let text = text.to_string_lossy();
    text.parse().map_err(|error| Failure::value(format_args!("'{text}' is not an address"), error))
}

/// The reason why the arguments of `recv` are invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecvError {
    #[error("recv needs the sender's ADDRESS, or --listen ADDRESS to wait for it")]
    NoAddress,
    #[error("--json prints on standard output, where the bytes go: name a FILE")]
    OutputTwice,
    #[error("recv --listen takes one FILE at most: the sender connects to it")]
    SeveralFiles,
}

impl UsageError for RecvError {}
