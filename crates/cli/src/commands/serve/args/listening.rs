//! The options of the addresses at which the server can be reached.

use clap::Args;

use super::values::{path_prefix, socket_mode};
use crate::args::When;

/// Listening.
#[derive(Debug, Args)]
#[command(next_help_heading = "Listening")]
pub(crate) struct PlaceArgs {
    /// Listen on an address or host name, with or without :PORT, or on unix:PATH; can be repeated.
    /// 0.0.0.0 is every IPv4 address, :: every IPv6 address and no other, :PORT every address of
    /// both [default: 127.0.0.1, only this machine; with --acme every address]
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) bind: Vec<String>,

    /// Listen on this port; 0 for any free port [default: 5000, with --acme 443]
    #[arg(short, long)]
    pub(crate) port: Option<u16>,

    /// Print the first address for other devices as a QR code: auto (if standard error is a
    /// terminal), always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(crate) qr: When,

    /// Serve below this path of the URL, such as /files
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true,
        value_parser = path_prefix)]
    pub(crate) path_prefix: String,

    /// Trust Forwarded, X-Forwarded-For and X-Forwarded-Proto from proxies at this address, in this
    /// network (10.0.0.0/8), or at Unix sockets (unix); can be repeated
    #[arg(long, value_name = "CIDR")]
    pub(crate) trusted_proxy: Vec<String>,

    /// Create Unix sockets with this mode, in octal: write permission allows connecting [default:
    /// those that the umask leaves]
    #[arg(long, value_name = "MODE", value_parser = socket_mode)]
    pub(crate) socket_mode: Option<u32>,

    /// Require each connection of a trusted proxy to begin with a PROXY protocol header, version 1
    /// or 2
    #[arg(long)]
    pub(crate) proxy_protocol: bool,
}
