//! Whom to believe over TLS: what all commands that ask others have in common.

use std::path::PathBuf;

use clap::Args;
use underpass_engine::{Mechanism, Policy};
use underpass_server::client::TlsSetup;
use underpass_transport::tls::{Pin, Trust, UnknownPin};

use crate::failure::{Failure, Result};
use crate::output;

/// Whom to believe over TLS.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Whom to believe over TLS")]
pub(crate) struct TrustArgs {
    /// Believe whom the authorities in this PEM file vouch for, and not the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,

    /// Believe everybody: whoever is on the way can read and change everything
    #[arg(short = 'k', long)]
    pub(crate) insecure: bool,

    /// Believe whoever has this public key, sha256// and Base64, and nobody else; with --cacert
    /// both have to be right
    #[arg(long = "pin", value_name = "PIN", value_parser = pin)]
    pub(crate) pins: Vec<Pin>,
}

impl TrustArgs {
    /// Whether any of it was said.
    pub(crate) fn is_given(&self) -> bool {
        self.cacert.is_some() || self.insecure || !self.pins.is_empty()
    }

    /// What all connections of the command share. Says so if nobody has to prove anything, and looks
    /// at once at the authorities that were named.
    pub(crate) fn setup(&self, policy: Policy) -> Result<TlsSetup> {
        if self.insecure && self.pins.is_empty() {
            output::note("--insecure: nobody has to prove who it is");
        }
        let setup = TlsSetup::new(self.trust(policy));
        if self.cacert.is_some() {
            setup.connector().map_err(Failure::line)?;
        }
        Ok(setup)
    }

    fn trust(&self, policy: Policy) -> Trust {
        // Whoever has the key is the one that was meant, whatever else a certificate says.
        let is_pin_enough = self.cacert.is_none() && !self.pins.is_empty();
        Trust {
            authorities: self.cacert.clone(),
            insecure: self.insecure || is_pin_enough,
            pins: self.pins.clone(),
            kernel: uses_kernel(policy),
        }
    }
}

/// Whether the kernel may encrypt: unless everything has to be copied through user space.
pub(crate) fn uses_kernel(policy: Policy) -> bool {
    policy != Policy::Require(Mechanism::ReadWrite)
}

fn pin(text: &str) -> std::result::Result<Pin, String> {
    text.parse().map_err(|error: UnknownPin| error.to_string())
}
