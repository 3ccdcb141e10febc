//! TLS trust: the options that all clients share.

use std::path::PathBuf;

use clap::Args;
use underpass_client::TlsSetup;
use underpass_engine::Policy;
use underpass_transport::tls::{Pin, Trust};

use crate::failure::{Failure, Result};
use crate::output;

/// The options of TLS trust.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "TLS trust")]
pub(crate) struct TlsTrustArgs {
    /// Trust the certificate authorities in this PEM file instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,

    /// Accept any certificate: anyone on the network path can then read and change everything
    #[arg(short = 'k', long)]
    pub(crate) insecure: bool,

    /// Trust only a server with this public key, sha256//BASE64, also with --cacert
    #[arg(long = "pin", value_name = "PIN")]
    pub(crate) pins: Vec<Pin>,
}

impl TlsTrustArgs {
    /// Returns whether any of them was given.
    pub(crate) fn is_given(&self) -> bool {
        self.cacert.is_some() || self.insecure || !self.pins.is_empty()
    }

    /// Returns the TLS setup of all connections of the command. Warns if certificates are not
    /// checked, and reads the given certificate authorities at once.
    pub(crate) fn setup(&self, policy: Policy) -> Result<TlsSetup> {
        if self.insecure && self.pins.is_empty() {
            output::note("--insecure: certificates are not checked");
        }
        let trust = Trust::new(self.cacert.clone(), self.insecure, self.pins.clone(), policy);
        let setup = TlsSetup::new(trust);
        if self.cacert.is_some() {
            setup.connector().map_err(Failure::line)?;
        }
        Ok(setup)
    }
}
