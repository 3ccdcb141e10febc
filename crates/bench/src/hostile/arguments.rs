//! What can be typed after `bench hostile`.

use std::path::Path;

use clap::Args;

use super::load::Kind;
use crate::serve::CommonArgs;

/// What can be typed after `bench hostile`.
#[derive(Debug, Args)]
pub struct HostileArgs {
    /// Kinds of bad clients, one after the other [default: all]
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub(crate) loads: Vec<Kind>,

    /// Connections of the bad clients, from 64 addresses of loopback
    #[arg(long, value_name = "N", default_value_t = 8000,
        value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub(crate) connections: u32,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

impl HostileArgs {
    /// Where the record is to go.
    pub fn json(&self) -> Option<&Path> {
        self.common.run.json.as_deref()
    }
}
