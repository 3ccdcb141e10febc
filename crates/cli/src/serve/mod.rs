//! What `underpass serve` needs beside the server itself: its settings from three places, its
//! confinement, its sockets, its signals and its log.

mod activation;
mod args;
mod certificate;
mod config;
mod confine;
mod control;
mod layers;
mod limits;
mod listen;
mod log_file;
mod settings;

use std::path::Path;

pub(crate) use activation::inherited;
pub(crate) use args::ServeArgs;
pub(crate) use certificate::Certificate;
pub(crate) use confine::{Bounds, Confine, Confinement};
pub(crate) use control::{Watch, keep_signals};
pub(crate) use layers::complete;
pub(crate) use listen::addresses;
pub(crate) use log_file::{AccessLog, LogFile};
pub(crate) use settings::settings;

/// What is told when a server starts.
#[derive(Debug)]
pub(crate) struct Served<'a> {
    /// The folder or file.
    pub(crate) root: &'a Path,
    /// Where it can be reached: `127.0.0.1:5000`, `unix:/run/socket`.
    pub(crate) addresses: &'a [String],
    /// Where those without TLS are sent from to there.
    pub(crate) redirects: &'a [String],
    /// The certificate, if there is TLS.
    pub(crate) certificate: Option<&'a Certificate>,
    /// The path of the URL that everything is below.
    pub(crate) prefix: &'a str,
    /// Whether nobody is asked for a password.
    pub(crate) is_open: bool,
    /// Whether everybody may change something.
    pub(crate) lets_everybody_write: bool,
    /// What the process has given up.
    pub(crate) confinement: &'a Confinement,
    /// Whether only the addresses are to be told.
    pub(crate) quiet: bool,
}
